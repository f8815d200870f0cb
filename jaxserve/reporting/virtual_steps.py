"""The steps of a simulation as an engine would have written them down, with times of the virtual clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from jaxserve.predict.step_costs import name_of
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.scheduling.token_counts import TokenCounts


class VirtualSteps(Observer):
    """Takes them down; memory grows with every step.

    Args:
      ladder: that programs and their padding are told by; None: each step is one program without padding.
      predictor: s that a plan should take, to stand beside what it took; None: nothing stands there.

    Attributes:
      steps: those that are over, in the order of their ends.
    """

    def __init__(self, ladder: Buckets | None = None, predictor: Callable[[Plan], float] | None = None):
        self._ladder, self._predictor = ladder, predictor
        self._flying: list[deque[tuple[float, TokenCounts]]] = []  # of each worker: when a plan was made, and what it runs
        self._free: list[float] = []  # s, since when
        self.steps: list[StepRecord] = []

    def started(self, policy: Policy, state: State) -> None:
        self._flying = [deque() for _ in state.workers]
        self._free = [0.0] * len(state.workers)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if plan.ids:
            self._flying[plan.worker].append((now, TokenCounts.of(plan, after)))

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        worker = plan.worker
        made, kinds = self._flying[worker].popleft()
        begun, self._free[worker] = max(made, self._free[worker]), now
        ran = dispatch(plan, self._ladder)
        shapes = [run.bucket.shape for run in ran if run.bucket]
        live = sum(len(run.rows) + len(run.pieces) for run in ran if run.bucket)
        self.steps.append(
            StepRecord(
                step=plan.step,
                worker=worker,
                digest=plan.digest,
                programs=tuple(map(name_of, ran)),
                rows=len(plan.ids),
                padded=sum(rows for shape in shapes for rows, _ in shape) - live,
                **kinds._asdict(),
                drawn=sum(map(len, outcome.tokens)),
                pages=before.workers[worker].memory.in_use,
                predicted=self._predictor(plan) if self._predictor else None,
                measured=now - begun,
                host=0.0,
                at=now,
            )
        )
