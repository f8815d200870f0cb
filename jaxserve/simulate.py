"""A policy on a virtual clock: the engine's own scheduling, with step times from a predictor, as long as a trace may be.

Until an outcome, a client or the policy's own timer is due nothing happens, so the clock jumps there. Nothing is kept but what waits or
runs, so memory is flat over any number of requests.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from jaxserve.scheduling.outcome import Outcome
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.watch import Watch, Watches
from jaxserve.served import Books, Served
from models.errors import UserError


class Simulated(NamedTuple):
    """Totals.

    Attributes:
      state: the last one.
      seconds: when the last thing happened.
      busy: s that each worker ran plans.
      plans: that had rows; steps: a plan of several counts as many.
      ran: tokens that were run, those of prompts that had to be run again included; of several steps, one for each token drawn.
      drawn: tokens that answers were given.
      preemptions: times an answer lost its memory.
      ends: answers by reason.
    """

    state: State
    seconds: float
    busy: tuple[float, ...]
    plans: int
    steps: int
    ran: int
    drawn: int
    preemptions: int
    ends: Mapping[str, int]


def one_token(plan: Plan) -> Outcome:
    """What a step comes to where only lengths matter: a token for each draw, and no end but the limit."""
    return Outcome(tuple([(1,) * draws for draws in plan.draws]))


def simulate(
    policy: Policy,
    state: State,
    requests: Iterable[Request],
    seconds: Callable[[Plan], float],
    *,
    run: Callable[[Plan], Outcome] = one_token,
    cancels: Iterable[tuple[float, int]] = (),
    served: Callable[[Served], None] = lambda answer: None,
    watch: Watch | None = None,
) -> Simulated:
    """Everything from the first arrival to the last end.

    What is due at the same moment comes in this order: requests, cancellations, outcomes.

    Args:
      requests: in the order of their arrival, which is when they are submitted; taken one at a time.
      seconds: what a plan takes; with several plans under way, one after the other on each worker. A `Predictor`, or a log.
      run: what a plan comes to.
      cancels: (time, id).
      served: told of every answer when it is over, of those refused too.
      watch: sees all that the scheduler does.

    Raises:
      UserError: requests go back in time.
      RuntimeError: the policy leaves requests waiting for ever, or asks to be called again at once; a step that takes no time, or
        for ever.
    """
    books = Books(served)
    scheduler = Scheduler(policy, state, Watches(books, watch) if watch else books)
    workers = _Workers(scheduler, run, seconds)
    arrivals, leaving = _ascending(requests), iter(sorted(cancels, key=lambda cancel: cancel[0]))
    coming, going, now = next(arrivals, None), next(leaving, None), 0.0
    while True:
        due = coming.arrival if coming else math.inf
        due = min(due, going[0] if going else math.inf, workers.due, scheduler.wake)
        if due == math.inf:
            break
        now = due
        while coming and coming.arrival <= now:
            _submit(scheduler, coming, now)
            coming = next(arrivals, None)
        while going and going[0] <= now:
            scheduler.cancel(going[1], now)
            going = next(leaving, None)
        workers.fold(now)
        while (plan := scheduler.plan(now)) is not None:
            workers.start(plan, now)
        if not scheduler.wake > now:
            raise RuntimeError(f"the policy wants to be called again at {scheduler.wake} s, which is not after {now} s")
    if books.open:
        raise RuntimeError(f"{books.open} answers wait for ever: nothing runs, and the policy waits for nothing either")
    busy = tuple(workers.busy)
    counts = (workers.plans, workers.steps, workers.ran, books.drawn, books.preemptions)
    return Simulated(scheduler.state, now, busy, *counts, dict(books.ends))


class _Workers:
    """What is under way, and when it ends."""

    def __init__(self, scheduler: Scheduler, run: Callable[[Plan], Outcome], seconds: Callable[[Plan], float]):
        self._scheduler, self._run, self._seconds = scheduler, run, seconds
        self._flying: list[tuple[float, int, Plan, Outcome]] = []  # a heap, by the time of their ends
        self._serial = itertools.count()
        workers = len(scheduler.state.workers)
        self._free, self.busy = [0.0] * workers, [0.0] * workers
        self.plans = self.steps = self.ran = 0

    @property
    def due(self) -> float:
        """When the next outcome is known; inf if nothing runs."""
        return self._flying[0][0] if self._flying else math.inf

    def start(self, plan: Plan, now: float) -> None:
        """A plan was made: what it comes to is settled, and known when its worker has run it after all that came before."""
        outcome = self._run(plan)
        if not plan.ids:
            return
        took, worker = self._seconds(plan), plan.worker
        if not 0 < took < math.inf:
            raise RuntimeError(f"plan {plan.step} is said to take {took} s; a step takes some time, and not for ever")
        self.busy[worker] += took
        self._free[worker] = max(now, self._free[worker]) + took
        heapq.heappush(self._flying, (self._free[worker], next(self._serial), plan, outcome))
        self.plans += 1
        self.steps += plan.steps
        self.ran += sum(map(len, outcome.tokens)) if plan.steps > 1 else plan.tokens

    def fold(self, now: float) -> None:
        """Take in all outcomes that are known by now."""
        while self._flying and self._flying[0][0] <= now:
            _, _, plan, outcome = heapq.heappop(self._flying)
            self._scheduler.fold(plan, outcome, now)


def _submit(scheduler: Scheduler, request: Request, now: float) -> None:
    try:
        scheduler.submit(request, now)
    except UserError:  # whoever watches has been told
        return


def _ascending(requests: Iterable[Request]) -> Iterator[Request]:
    before = -math.inf
    for request in requests:
        if request.arrival < before:
            raise UserError(
                f"request {request.id} arrives at {request.arrival} s, before the last one at {before} s; sort them"
            )
        before = request.arrival
        yield request
