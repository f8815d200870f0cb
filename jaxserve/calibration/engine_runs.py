"""Runs of an engine that lie between the rounds of a calibration: of each pair the first one calibrates and the second one judges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from jaxserve.calibration.engine_steps import EngineSteps, serve
from jaxserve.engine.engine import Engine
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.step_record import StepRecord

RUNS = 6  # minutes of the machine that are seen, half of which calibrate
WARM = 1  # step of each run that does not count, for it finds nothing of the engine's in any cache

Step: TypeAlias = tuple[Plan, StepRecord]


class Steps(NamedTuple):
    """Of several runs.

    Attributes:
      runs: the run of each step, in its order.
    """

    steps: tuple[Step, ...]
    runs: tuple[int, ...]

    @classmethod
    def of(cls, runs: Sequence[Sequence[Step]], start: int = 0) -> Self:
        """Every second run, the first of which is `start`."""
        numbered = [(step, i) for i in range(start, len(runs), 2) for step in runs[i]]
        return cls(tuple([step for step, _ in numbered]), tuple([i for _, i in numbered]))

    @property
    def measured(self) -> np.ndarray:
        """s of the programs, f64 [steps]."""
        return np.array([record.measured for _, record in self.steps])

    @property
    def decodes(self) -> np.ndarray:
        """bool [steps]: every row decodes."""
        return np.array([plan.tokens == len(plan.ids) for plan, _ in self.steps], bool)


class EngineRuns:
    """Has an engine run between rounds.

    Args:
      watch: that the engine tells its steps.
      rounds: that there will be; the runs are spread over them.
      requests: of the first pair of runs; each later pair has half as many, so that small batches occur as well.
      done: called with 1 after each request.

    Attributes:
      runs: the steps of each.
    """

    def __init__(self, engine: Engine, watch: EngineSteps, rounds: int, requests: int, done: Callable[[int], None]):
        self._engine, self._watch, self._done = engine, watch, done
        self._sizes, self._due = sizes(requests), [math.ceil((k + 1) * rounds / RUNS) - 1 for k in range(RUNS)]
        self.runs: list[list[Step]] = []

    def __call__(self, index: int) -> None:
        """After a round: the runs that are due."""
        for k, (due, requests) in enumerate(zip(self._due, self._sizes, strict=True)):
            if due == index:
                before = len(self._watch.steps)
                serve(self._engine, requests, self._done, seed=k)
                steps = self._watch.steps[before:]
                self.runs.append(steps[WARM:] or steps)


def sizes(requests: int) -> list[int]:
    """Requests of each run."""
    return [max(requests >> (k // 2), 1) for k in range(RUNS)]


def stretches(steps: Sequence[Step]) -> list[list[Step]]:
    """One long run as several, of as many steps each."""
    ends = [round(len(steps) * k / RUNS) for k in range(RUNS + 1)]
    return [list(steps[low:high]) for low, high in itertools.pairwise(ends)]
