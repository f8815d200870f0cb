"""The workers of a simulation: what is under way on each, and when it ends."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.step_result import StepResult
from jaxserve.simulator.pace import Pace


class Workers:
    """Each runs the plans that it is given one after the other.

    Args:
      scheduler: is told of the outcomes.
      run: what a plan comes to.
      pace: how long it takes.

    Attributes:
      due: s, when the next outcome is known; inf if nothing runs.
      busy: s that each worker had a plan, those included in which it was stalled.
      plans: that had rows; steps: a plan of several counts as many.
      ran: tokens that were run; of several steps, one for each token drawn.
    """

    def __init__(self, scheduler: Scheduler, run: Callable[[Plan], StepResult], pace: Pace):
        self._scheduler, self._run, self._pace = scheduler, run, pace
        self._flying: list[tuple[float, int, Plan, StepResult]] = []  # a heap, by the time of their ends
        self._serial = itertools.count()
        workers = len(scheduler.state.workers)
        self._free, self.busy = [0.0] * workers, [0.0] * workers
        self.plans = self.steps = self.ran = 0
        self.due = math.inf

    def start(self, plan: Plan, now: float) -> None:
        """A plan was made: what it comes to is settled, and known when its worker has run it after all that came before."""
        outcome = self._run(plan)
        if not plan.ids:
            return
        worker = plan.worker
        begin = max(now, self._free[worker])
        end = self._free[worker] = self._pace.end(plan, begin)
        self.busy[worker] += end - begin
        heapq.heappush(self._flying, (end, next(self._serial), plan, outcome))
        self.due = self._flying[0][0]
        self.plans += 1
        self.steps += plan.steps
        self.ran += sum(map(len, outcome.tokens)) if plan.steps > 1 else plan.tokens

    def fold(self, now: float) -> None:
        """Take in all outcomes that are known by now."""
        while self.due <= now:
            _, _, plan, outcome = heapq.heappop(self._flying)
            self.due = self._flying[0][0] if self._flying else math.inf
            self._scheduler.update(plan, outcome, now)
