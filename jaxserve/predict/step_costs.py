"""What steps should move and compute, by the programs that they run in: what a roofline needs beside the clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from costmodel.arch.formats import find_format
from costmodel.hardware.chip import Chip, peak_name
from jaxserve.predict.analytical import Analytical
from jaxserve.programs.dispatch import Run, dispatch
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult

if TYPE_CHECKING:
    from jaxserve.programs.program_set import Program


def name_of(run: Run) -> str:
    """Of the program; where no ladder says which it is, what kind of work it does."""
    if run.bucket is not None:
        return run.bucket.name
    kinds = [*(["decode"] if run.starts else []), *(["prefill"] if run.pieces else [])]
    return f"{' + '.join(kinds)}, without padding"


@dataclasses.dataclass
class Sums:
    """Over all steps that ran the same programs: how many, B moved and FLOP computed, padding included."""

    steps: int = 0
    bytes: float = 0.0
    flops: float = 0.0


class StepCosts(Observer):
    """Sums up what every step of a run should cost (witness: analytical), from its plan and so from its true contexts. Memory is flat.

    Args:
      predictor: of the engine or the simulation.
      chip: the one that it is for.
      dtype: of the weights. FLOPs are counted at this one's peak: those of another dtype count as many as would take as long there.

    Raises:
      UserError: the chip has no peak for the dtype.
    """

    def __init__(self, predictor: Analytical, chip: Chip, dtype: str):
        self._predictor, self._chip = predictor, chip
        self._dtype = peak_name(find_format(dtype).compute)
        self._peak = float(chip.peak(self._dtype))
        self._sums: dict[tuple[str, ...], Sums] = {}

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        """Here, and not where it was planned: the engine has handed over the next step by now, so the device doesn't wait for this."""
        self.add(dispatch(plan, self._predictor.ladder))

    def add(self, step: Iterable[Run]) -> None:
        """A step that ran these programs, one after the other."""
        predictor, names, memory, compute = self._predictor, list[str](), 0.0, 0.0
        for run in step:
            names.append(name_of(run))
            for i in range(run.steps):
                roofs = predictor.roofs(predictor.run_load(run, i))
                memory += float(roofs.memory)
                compute += float(roofs.compute)
        sums = self._sums.setdefault(tuple(names), Sums())
        sums.steps += 1
        sums.bytes += memory * float(self._chip.bandwidth)
        sums.flops += compute * self._peak

    def to_json(self, programs: Iterable[Program] = ()) -> dict[str, Any]:
        """What `Run.settings["programs"]` holds, as plain data.

        Args:
          programs: that were compiled, for XLA's own counts (witness: compiled); it counts the body of a loop once.
        """
        chip = self._chip
        return {
            "chip": {
                "name": chip.name,
                "source": chip.source,
                "bandwidth": float(chip.bandwidth),
                "peak": self._peak,
                "dtype": self._dtype,
            },
            "steps": [{"programs": list(names), **dataclasses.asdict(sums)} for names, sums in self._sums.items()],
            "compiled": [
                {
                    "program": program.bucket.name,
                    "width": program.bucket.width,
                    "flops": program.totals.flops,
                    "bytes": program.totals.bytes_accessed,
                    "loops": program.loops,
                }
                for program in programs
            ],
        }
