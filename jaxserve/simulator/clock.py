"""The virtual clock: it jumps from one thing that happens to the next, and the scheduler is asked when the host comes to it."""

from __future__ import annotations

import math

from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.simulator.clients import Clients
from jaxserve.simulator.faulty import Leaving
from jaxserve.simulator.pace import Pace
from jaxserve.simulator.workers import Workers
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
