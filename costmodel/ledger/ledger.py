"""The ledger of a compiled program: a line for each instruction that runs, priced three ways, and how often it runs.

`reported` is XLA's own count, loop bodies once; `with_trips` multiplies by trip counts. Both come from the program's text by XLA's
rules (`hlo_count`), so they exist where `Compiled.cost_analysis()` has nothing to say, as for a GPU that isn't there. `traffic` is what
moves in main memory, by component of the model and kind of data (`costmodel.ledger.traffic`), with custom calls priced; one
that no one priced is named in `unpriced`, and the total is "at least".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jax.stages import Compiled

from costmodel.compile.targets import TargetProgram
from costmodel.hlo.byte_rules import padded
from costmodel.hlo.cost import Cost, total
from costmodel.hlo.count import count
from costmodel.hlo.module import Module, parse
from costmodel.hlo.trips import trip_counts
from costmodel.ledger.collectives import check_mesh
from costmodel.ledger.components import SCOPES
from costmodel.ledger.custom_calls import CUSTOM_CALLS, Pricer
from costmodel.ledger.execution import Loop, given_trips, missing, runs
from costmodel.ledger.operands import TILES
from costmodel.ledger.traffic import Traffic, TrafficModel
from models.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One instruction of the entry, of a loop, of what is called or of a branch; a fusion is one line.

    Attributes:
      computation, name, opcode, op_name: as in the text.
      loops: names of the loops around it, outermost first.
      runs: how often it runs; None in a loop whose count nobody gave.
      reported: XLA's count of one run.
      traffic: what one run moves and computes, and by which corrections that differs from `reported`.
    """

    computation: str
    name: str
    opcode: str
    op_name: str
    loops: tuple[str, ...]
    runs: float | None
    reported: Cost
    traffic: Traffic

    @property
    def component(self) -> str:
        """The component of the model that most of its bytes are for, or else its FLOPs; "" of an instruction that does neither."""
        shares: dict[str, float] = {}
        for item in self.traffic.items:
            shares[item.component] = shares.get(item.component, 0) + item.bytes
        shares = shares or {component: cost.flops + cost.transcendentals for component, cost in self.traffic.work}
        return max(shares, key=shares.__getitem__, default="")

    @property
    def confidence(self) -> str:
        """How far `traffic` is to be trusted: exact (as XLA counts it), corrected, bound (a limit) or unknown."""
        return self.traffic.confidence

    @property
    def notes(self) -> tuple[str, ...]:
        """Why `traffic` differs from `reported`, and what of it isn't known."""
        unknown = (f"{name} has no price" for name in self.traffic.unpriced)
        return (*(reason for reason, _ in self.traffic.corrections), *unknown)


@dataclasses.dataclass(frozen=True)
class Ledger:
    """What a program costs, per device, line by line.

    Attributes:
      module: the program.
      lines: in the order of the text, callees where they are called.
      loops: all loops by name, with the counts used.
    """

    module: Module
    lines: tuple[Line, ...]
    loops: Mapping[str, Loop]

    @property
    def source(self) -> str:
        """Where the figures come from."""
        return f"compiled: text of {self.module.name}, counted by the rules of XLA's HloCostAnalysis"

    @property
    def trips(self) -> dict[str, float]:
        """The trip count used for each loop that has one: the program's own, or the caller's where data decide."""
        return {name: loop.trips for name, loop in self.loops.items() if loop.trips is not None}

    @property
    def reported(self) -> Cost:
        """XLA's own total: loop bodies once, of a conditional the maximum of its branches, custom calls nothing."""
        return total(line.reported for line in self.lines)

    @property
    def with_trips(self) -> Cost:
        """The total with each line as often as it runs.

        Raises:
          UserError: a loop is bounded by data and `ledger` was not told its count.
        """
        return total(line.reported * times for line, times in self._counted())

    @property
    def traffic(self) -> Cost:
        """What moves in main memory (bytes) and what is computed, custom calls included, with each line as often as it runs.

        Raises:
          UserError: as `with_trips`.
        """
        return total(line.traffic.cost * times for line, times in self._counted())

    def by_component(self) -> dict[str, Cost]:
        """`traffic` by component of the model, the one with the most bytes first.

        Raises:
          UserError: as `with_trips`.
        """
        found: dict[str, Cost] = {}
        for line, times in self._counted():
            for item in line.traffic.items:
                found[item.component] = found.get(item.component, Cost()) + Cost(bytes=item.bytes) * times
            for component, work in line.traffic.work:
                found[component] = found.get(component, Cost()) + work * times
        return dict(sorted(found.items(), key=lambda pair: pair[1].bytes, reverse=True))

    @property
    def link_bytes(self) -> dict[str, float]:
        """Bytes that a device sends to others, by axis of the mesh; under "" those of groups that no mesh names.

        Raises:
          UserError: as `with_trips`.
        """
        found: dict[str, float] = {}
        for line, times in self._counted():
            for each in line.traffic.collectives:
                found[each.axis] = found.get(each.axis, 0.0) + each.link_bytes * times
        return found

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Custom calls without a price, as "name (target)"."""
        return tuple(dict.fromkeys(name for line in self.lines for name in line.traffic.unpriced))

    def top(self, lines: int) -> list[Line]:
        """The lines with the most traffic over all their runs, the largest first.

        Raises:
          UserError: as `with_trips`.
        """
        ordered = sorted(self._counted(), key=lambda pair: pair[0].traffic.cost.bytes * pair[1], reverse=True)
        return [line for line, _ in ordered[:lines]]

    def _counted(self) -> list[tuple[Line, float]]:
        if error := missing(self.loops):
            raise error
        return [(line, line.runs) for line in self.lines if line.runs is not None]


def ledger(
    compiled_or_text: Compiled | TargetProgram | str,
    trips: float | Mapping[str, float] | None = None,
    *,
    scopes: Mapping[str, str | None] = SCOPES,
    custom_calls: Mapping[str, Pricer] = CUSTOM_CALLS,
    mesh: Mapping[str, int] | None = None,
) -> Ledger:
    """Read the ledger of a compiled program.

    Args:
      compiled_or_text: ``jax.jit(f).lower(...).compile()``, a program of `costmodel.compile_for`, or the text of one (``as_text()``).
      trips: how often the loops run that data bound, which the program can't say: one count for all such loops, or counts by the
        name of the loop or a scope of its op_name, as `StepProgram.trips` gives them. Not needed without such loops, nor for `reported`.
      scopes: component of each `jax.named_scope`; {**SCOPES, "mine": "values"} adds one.
      custom_calls: prices of kernels; {**CUSTOM_CALLS, "mine": pricer} adds one.
      mesh: size of each axis of the mesh of a partitioned program, so that `link_bytes` can name the axes.

    Raises:
      UserError: something else than these; text that is cut off or not HLO; an opcode that isn't known; a count that is negative,
        no whole number (a mean over the runs of a loop within a loop may be a fraction), or for a loop that isn't there.
    """
    module = parse(_text(compiled_or_text))
    check_mesh(mesh, module.partitions)
    loops, costs = given_trips(module, trip_counts(module), trips), count(module)
    tiled = count(module, padded)  # a TPU's own count is of whole tiles; elsewhere there are none
    model = TrafficModel(module, costs, scopes=scopes, custom_calls=custom_calls, mesh=mesh)
    lines = []
    for run in runs(module, costs, loops):
        i, reported = run.instruction, run.reported
        traffic = model(run.computation, i, reported.bytes)
        own = costs[run.computation, i.name]
        if reported == own and (padding := tiled[run.computation, i.name].bytes - own.bytes):
            reported += Cost(bytes=padding)
            traffic = dataclasses.replace(
                traffic, corrections=(*traffic.corrections, (TILES, -padding)), confidence=_corrected(traffic.confidence)
            )
        lines.append(Line(run.computation, i.name, i.opcode, i.op_name, run.loops, run.times, reported, traffic))
    return Ledger(module, tuple(lines), loops)


def _corrected(confidence: str) -> str:
    return "corrected" if confidence == "exact" else confidence


def _text(program: Compiled | TargetProgram | str) -> str:
    if isinstance(program, str):
        return program
    if not isinstance(program, (Compiled, TargetProgram)):
        kind = type(program).__name__
        raise UserError(f"ledger: a {kind} is no compiled program; pass jax.jit(f).lower(...).compile() or the text of one")
    if text := program.as_text():
        return text
    raise UserError(
        "ledger: this backend gives no text of its programs; compile for a chip that does, see costmodel.compile.targets"
    )
