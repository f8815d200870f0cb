"""Which instructions of a program run by themselves, and how often: what a ledger has lines for.

The entry's instructions run once, a loop's body as often as its trip count and its condition once more, what is called where it is
called. Fused instructions run within their fusion and functions of a reduction within that, so they are no lines.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence

from costmodel.hlo.cost import Cost, total
from costmodel.hlo.module import Instruction, Module
from models.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """A loop and its trips for one run of it: as the program says, else as the caller says (`given`), else None.

    A count of the caller's may be a mean over the runs of a loop within a loop, and then be a fraction.
    """

    name: str
    op_name: str
    trips: float | None
    given: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """An instruction that runs `times` (None: as often as a loop whose count nobody gave), in `loops`, outermost first.

    `reported` is what XLA counts for one run, without what has runs of its own: nothing for a loop or a call.
    """

    computation: str
    instruction: Instruction
    loops: tuple[str, ...]
    times: float | None
    reported: Cost


def given_trips(module: Module, counts: Mapping[str, int | None], trips: float | Mapping[str, float] | None) -> dict[str, Loop]:
    """The loops of a program by name, with the counts that the caller gives for those that data bound.

    Args:
      counts: what the program says, `costmodel.hlo.trips.trip_counts`.
      trips: one count for all loops bounded by data; or counts by the loop's name ("while.3"; "while" and "while.3" also mean
        "while.3.clone"), or by a scope of its op_name ("attn/kv_read"), the most specific one winning.

    Raises:
      UserError: a count that is negative or no number, a key that no loop has, or a count that contradicts the program's.
    """
    found = {}
    for computation in module.computations.values():
        for each in computation.instructions.values():
            if each.opcode == "while":
                found[each.name] = Loop(each.name, each.op_name, counts[each.name])
    if trips is None:
        return found
    entries = trips if isinstance(trips, Mapping) else {"": trips}
    best: dict[str, tuple[tuple[int, int], float]] = {}
    for key, value in entries.items():
        count = _count(key, value)
        ranks = {name: rank for name, loop in found.items() if (rank := _rank(loop, key)) != (0, 0)}
        bounded_by_data = [name for name in ranks if found[name].trips is None]
        if key and not bounded_by_data:
            _confirm(key, count, [found[name] for name in ranks], found)
        for name in bounded_by_data:
            best[name] = max(best.get(name, ((0, 0), 0)), (ranks[name], count))
    return found | {name: dataclasses.replace(found[name], trips=count, given=True) for name, (_, count) in best.items()}


def runs(module: Module, costs: Mapping[tuple[str, str], Cost], loops: Mapping[str, Loop]) -> tuple[Run, ...]:
    """The runs of a program, in order.

    Args:
      costs: XLA's cost of each instruction, `costmodel.hlo.count.count`.

    Of a conditional the branch with the most bytes runs; its own line makes the sum XLA's, the maximum of each field over the branches.

    Raises:
      UserError: a loop would run a fraction of a time in all.
    """
    found = tuple(_Runs(module, costs, loops).of(module.entry.name, 1, ()))
    for run in found:
        if run.times is not None and run.times != round(run.times):
            loop = loops[run.loops[-1]]
            raise UserError(
                f"trips of {_title(loop)} is {loop.trips:g}, which makes no whole number of trips in all; give a whole number"
            )
    return found


class _Runs:
    def __init__(self, module: Module, costs: Mapping[tuple[str, str], Cost], loops: Mapping[str, Loop]) -> None:
        self.module, self.costs, self.loops = module, costs, loops

    def of(self, name: str, times: float | None, within: tuple[str, ...]) -> Iterator[Run]:
        """The runs of a computation that runs `times`."""
        for each in self.module.computations[name].instructions.values():
            called: tuple[tuple[str, float | None], ...] = ()
            inside = within
            if each.opcode == "while":
                inside = (*within, each.name)
                often = _product(times, self.loops[each.name].trips)
                tests = (
                    None if often is None or times is None else often + times
                )  # once more in each run, to find that it is over
                called = ((each.callees("condition")[0], tests), (each.callees("body")[0], often))
            elif each.opcode == "call":
                called = ((each.callees()[0], times),)
            elif each.opcode == "conditional":
                called = ((max(each.callees(), key=self.weight), times),)
            elsewhere = total(
                self.costs[callee, inner] for callee, _ in called for inner in self.module.computations[callee].instructions
            )
            yield Run(name, each, within, times, self.costs[name, each.name] - elsewhere)
            for callee, count in called:
                yield from self.of(callee, count, inside)

    def weight(self, name: str) -> tuple[float, float]:
        """Bytes and FLOPs of a branch with its loops; a loop without a count once, so that a branch can be chosen at all."""
        whole = total(run.reported * (1 if run.times is None else run.times) for run in self.of(name, 1, ()))
        return whole.bytes, whole.flops


def missing(loops: Mapping[str, Loop]) -> UserError | None:
    """The error for loops without a count, if there are any."""
    names = [loop for loop in loops.values() if loop.trips is None]
    if not names:
        return None
    titles = ", ".join(_title(loop) for loop in names)
    many = f"trips={{{names[0].name!r}: n}}"
    return UserError(
        f"the data decide how often {titles} runs, the program does not say; pass trips=n for all such loops, or {many}"
    )


def _title(loop: Loop) -> str:
    return f"{loop.name} ({loop.op_name})" if loop.op_name else loop.name


def _product(outer: float | None, inner: float | None) -> float | None:
    """How often the body of a loop runs in all; whole numbers stay so, and a mean over the runs makes one again."""
    if outer == 0 or inner == 0:
        return 0
    if outer is None or inner is None:
        return None
    product = outer * inner
    return round(product) if math.isclose(product, round(product), rel_tol=1e-9) else product


def _count(key: str, value: float) -> float:
    """The caller's count, an int if it is whole."""
    numeric = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    if not numeric:
        raise UserError(f"{f'trips of {key!r}' if key else 'trips'} is {value!r}; give a whole number of at least 0")
    return int(value) if value == int(value) else float(value)


def _confirm(key: str, count: float, named: Sequence[Loop], loops: Mapping[str, Loop]) -> None:
    """A key that names no loop bounded by data may only say what the program says."""
    if not named:
        names = ", ".join(_title(loop) for loop in loops.values()) or "none"
        raise UserError(f"trips: no loop is called {key!r}; the loops of this program are: {names}")
    for loop in named:
        if loop.trips != count:
            raise UserError(
                f"trips of {key!r} is {count}, but {_title(loop)} runs {loop.trips} times by the program; leave it out"
            )


def _rank(loop: Loop, key: str) -> tuple[int, int]:
    """How closely a key names a loop: by its name, the beginning of it up to a dot, a scope, or not at all (0, 0); "" is for all."""
    if not key:
        return 1, 0
    if key == loop.name:
        return 4, 0
    if loop.name.startswith(f"{key}."):
        return 3, len(key)
    return (2, len(key)) if f"/{key.strip('/')}/" in f"/{loop.op_name}/" else (0, 0)
