"""What the compiler says about a program: its own FLOP, byte and memory counts, unaltered.

Two traps that a reader of these numbers must know. The body of a loop is counted once, whatever its trip count, so a count that
contains loops is a lower bound (`loops` says whether there are any). And a gather or scatter inside a fusion may be charged for
its whole operand, so bytes grow with the KV pool although the traffic does not.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Protocol

from jax.stages import Compiled


@dataclasses.dataclass(frozen=True)
class XlaTotals:
    """XLA's totals of one executable, per device. None means unknown, never zero.

    `flops`, `bytes_accessed` and `transcendentals` come from ``Compiled.cost_analysis()``; the rest, in bytes, from
    ``Compiled.memory_analysis()``. `alias_bytes` is the part of the arguments that the outputs reuse (donation).
    """

    flops: float | None = None
    bytes_accessed: float | None = None
    transcendentals: float | None = None
    argument_bytes: int | None = None
    output_bytes: int | None = None
    temp_bytes: int | None = None
    alias_bytes: int | None = None
    code_bytes: int | None = None
    peak_bytes: int | None = None


def xla_totals(compiled: Compiled) -> XlaTotals:
    """Read the totals of a compiled program; what XLA does not report is None."""
    return XlaTotals(**_costs(compiled.cost_analysis()), **_memory(compiled.memory_analysis()))


def _costs(analysis: Any) -> dict[str, Any]:
    """Totals of a cost analysis, which is a dict, a list of one dict (jax before 0.4.38), or None (a GPU that is not there)."""
    if isinstance(analysis, (list, tuple)):
        analysis = analysis[0] if analysis else None
    keys = {"flops": "flops", "bytes_accessed": "bytes accessed", "transcendentals": "transcendentals"}
    if not isinstance(analysis, Mapping) or not analysis:
        return dict.fromkeys(keys)
    # XLA leaves out a property whose value is zero. A custom call without a cost counts -1, so a negative total is no total.
    values = {field: float(analysis.get(key, 0.0)) for field, key in keys.items()}
    return {field: value if value >= 0 else None for field, value in values.items()}


def _memory(stats: Any) -> dict[str, Any]:
    fields = {
        "argument_bytes": "argument_size_in_bytes",
        "output_bytes": "output_size_in_bytes",
        "temp_bytes": "temp_size_in_bytes",
        "alias_bytes": "alias_size_in_bytes",
        "code_bytes": "generated_code_size_in_bytes",
        "peak_bytes": "peak_memory_in_bytes",
    }
    return {field: getattr(stats, name, None) for field, name in fields.items()}


class Counted(Protocol):
    """A compiled program that carries its totals: one of the engine's, or a `costmodel.compile.targets.TargetProgram`."""

    @property
    def totals(self) -> XlaTotals: ...


def in_place(small: XlaTotals | Counted, large: XlaTotals | Counted, *, slack: int = 4096) -> bool:
    """Whether a program updates its donated state without copying it (law 4 of the house).

    One copy of the state shows as temp bytes that grow with it; a state that was never donated shows as outputs that grow and
    alias nothing. Alias bytes by themselves look right even when XLA copies, so both differences are read. The answer True is a
    proof; temp bytes may also grow for another reason, as where a TPU keeps less of something else on chip.

    Args:
      small, large: the same program, or its totals, compiled with a smaller and a larger pool.
      slack: bytes by which either may grow all the same (alignment, an index array).

    Raises:
      ValueError: the second program's arguments are not larger, or a needed total is unknown: no answer can be given.
    """
    first, second = (x if isinstance(x, XlaTotals) else x.totals for x in (small, large))
    growth = {}
    for field in ("argument_bytes", "temp_bytes", "output_bytes", "alias_bytes"):
        before, after = getattr(first, field), getattr(second, field)
        if before is None or after is None:
            raise ValueError(f"in_place: {field} is unknown on this backend, so copies cannot be told")
        growth[field] = after - before
    if growth["argument_bytes"] <= slack:
        raise ValueError(f"in_place: the arguments grew by {growth['argument_bytes']} B only; compile with a larger pool")
    return growth["temp_bytes"] <= slack and growth["output_bytes"] - growth["alias_bytes"] <= slack


_WHILE = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) while\(", re.MULTILINE)


def loops(compiled: Compiled) -> int:
    """`while` instructions in the optimised program: above 0, the totals count some work once that runs many times."""
    return len(_WHILE.findall(compiled.as_text() or ""))
