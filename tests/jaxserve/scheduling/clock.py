"""Plays a policy on a virtual clock with made-up step times: what the engine and the simulator do, in the fewest lines.

Until an outcome, a client or the policy's own timer is due, nothing happens, so the clock jumps there.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult
from models.errors import UserError


class Played(NamedTuple):
    """What came out."""

    state: State
    plans: list[tuple[float, Plan]]  # all that were not idle, and when they were made
    ended: dict[int, tuple[float, str]]  # when and why
    refused: dict[int, UserError]


def one_token(plan: Plan) -> StepResult:
    """What a step comes to where only lengths matter: a token for each draw, and no end but the limit."""
    return StepResult(tuple([(1,) * draws for draws in plan.draws]))


def play(
    policy: Policy,
    state: State,
    requests: Iterable[Request],
    seconds: Callable[[Plan], float] = lambda plan: 1.0,
    run: Callable[[Plan], StepResult] = one_token,
    *,
    cancels: Iterable[tuple[float, int]] = (),
    watch: Observer | None = None,
    most: int = 100_000,
) -> Played:
    """Everything from the first arrival to the last end.

    Args:
      requests: each arrives at its `arrival`, in the order of their ids.
      seconds: what a plan takes; with several plans under way, one after the other on each worker.
      cancels: (time, id).
      most: events at most, so that a policy that never comes to an end fails.
    """
    serial, run_at = itertools.count(), [0.0] * len(state.workers)
    events: list[tuple[float, int, object]] = [(r.arrival, next(serial), r) for r in requests]
    events += [(at, next(serial), id) for at, id in cancels]
    heapq.heapify(events)
    scheduler = Scheduler(policy, state, watch)
    played = Played(state, [], {}, {})
    for _ in range(most):
        now = min(events[0][0] if events else math.inf, scheduler.wake)
        if now == math.inf:
            return played._replace(state=scheduler.state)
        while events and events[0][0] <= now:
            what = heapq.heappop(events)[2]
            if isinstance(what, Request):
                try:
                    scheduler.submit(what, now)
                except UserError as error:
                    played.refused[what.id] = error
            elif isinstance(what, int):
                scheduler.cancel(what, now)
            elif isinstance(what, tuple):
                plan, outcome = what
                played.ended.update({end.id: (now, end.reason) for end in scheduler.update(plan, outcome, now)})
        while new := scheduler.plan(now):
            played.plans.append((now, new))
            outcome = run(new)
            if new.ids:
                run_at[new.worker] = max(now, run_at[new.worker]) + seconds(new)
                heapq.heappush(events, (run_at[new.worker], next(serial), (new, outcome)))
        assert scheduler.wake > now, f"the policy wants to be called again at {scheduler.wake}, which is not after {now}"
    raise AssertionError(f"{most} events and no end: {scheduler.state}")
