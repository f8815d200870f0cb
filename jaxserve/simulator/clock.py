"""The virtual clock: it jumps from one thing that happens to the next, and the scheduler is asked when the host comes to it."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.step_result import StepResult
from jaxserve.simulator.clients import Clients
from jaxserve.simulator.faulty import Leaving
from jaxserve.simulator.pace import Pace
from models.errors import UserError


class VirtualClock:
    """Turns until nothing is due any more.

    Args:
      scheduler: who is asked.
      clients, leaving: who come, and who go before the end.
      workers: who run what is planned.
      pace: when the host comes to it.
    """

    def __init__(self, scheduler: Scheduler, clients: Clients, leaving: Leaving, workers: Workers, pace: Pace):
        self._scheduler, self._clients, self._leaving, self._workers, self._pace = scheduler, clients, leaving, workers, pace

    def run(self) -> float:
        """Everything: s, when the last thing happened.

        Raises:
          RuntimeError: the policy asks to be called again at once.
        """
        scheduler, clients, leaving, workers, pace = self._scheduler, self._clients, self._leaving, self._workers, self._pace
        now, ask = 0.0, math.inf  # when the host will be ready to plan
        while True:
            happens = min(clients.due, leaving.due, workers.due)
            due = min(happens, scheduler.wake if ask == math.inf else ask)
            if due == math.inf:
                return now
            now = due
            while happens <= now:
                self._take_in(now)
                happens = min(clients.due, leaving.due, workers.due)  # what follows at once
                ask = min(ask, pace.ready(now, scheduler.state.steps))
            if ask == math.inf:
                ask = min(ask, pace.ready(now, scheduler.state.steps))
            if ask > now:
                continue
            ask = math.inf
            while ask == math.inf and not _full(scheduler, now) and (plan := scheduler.plan(now)) is not None:
                workers.start(plan, now)
                if (again := pace.again(now, scheduler.state.steps)) > now:
                    ask = again
            if ask == math.inf and not scheduler.wake > now:
                raise RuntimeError(f"the policy wants to be called again at {scheduler.wake} s, which is not after {now} s")

    def _take_in(self, now: float) -> None:
        """All that happens at this moment."""
        clients, leaving = self._clients, self._leaving
        while clients.due <= now:
            self._submit(now)
        while leaving.due <= now:
            self._scheduler.cancel(leaving.take(), now)
        self._workers.fold(now)

    def _submit(self, now: float) -> None:
        request = self._clients.take()
        try:
            self._scheduler.submit(request, now)
        except UserError:  # whoever watches has been told
            return


def _full(scheduler: Scheduler, now: float) -> bool:
    """Whether the policy could say nothing now: its one worker has all the plans that it may have, and nobody waits against the clock.

    Most questions are of this kind, right after a plan was made, and would take a third of a simulation's time.
    """
    state = scheduler.state
    full = len(state.workers) == 1 and len(state.workers[0].flying) > scheduler.policy.limits.ahead
    return full and state.waiting.due == math.inf and scheduler.wake > now


# The workers of a simulation: what is under way on each, and when it ends.


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
