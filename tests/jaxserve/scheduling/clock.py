"""Plays a policy on a virtual clock with made-up step times: what the engine and the simulator do, in the fewest lines.

Until an outcome, a client or the policy's own timer is due, nothing happens, so the clock jumps there.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from jaxserve.scheduling.admission import cancel, submit
from jaxserve.scheduling.outcome import End, Outcome, fold
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from models.errors import UserError


class Watch:
    """Sees everything that happens; does nothing about it."""

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None: ...

    def cancelled(self, state: State, id: int, now: float) -> None: ...

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None: ...

    def folded(self, before: State, plan: Plan, outcome: Outcome, after: State, ends: tuple[End, ...], now: float) -> None: ...


class Played(NamedTuple):
    """What came out."""

    state: State
    plans: list[tuple[float, Plan]]  # all that were not idle, and when they were made
    ended: dict[int, tuple[float, str]]  # when and why
    refused: dict[int, UserError]


def one_token(plan: Plan) -> Outcome:
    """What a step comes to where only lengths matter: a token for each draw, and no end but the limit."""
    return Outcome(tuple([(1,) * draws for draws in plan.draws]))


def play(
    policy: Policy,
    state: State,
    requests: Iterable[Request],
    seconds: Callable[[Plan], float] = lambda plan: 1.0,
    run: Callable[[Plan], Outcome] = one_token,
    *,
    cancels: Iterable[tuple[float, int]] = (),
    watch: Watch | None = None,
    most: int = 100_000,
) -> Played:
    """Everything from the first arrival to the last end.

    Args:
      requests: each arrives at its `arrival`, in the order of their ids.
      seconds: what a plan takes; with several plans under way, one after the other on each worker.
      cancels: (time, id).
      most: events at most, so that a policy that never comes to an end fails.
    """
    serial, watch, run_at = itertools.count(), watch or Watch(), [0.0] * len(state.workers)
    events: list[tuple[float, int, object]] = [(r.arrival, next(serial), r) for r in requests]
    events += [(at, next(serial), id) for at, id in cancels]
    heapq.heapify(events)
    played = Played(state, [], {}, {})
    timer = math.inf
    for _ in range(most):
        now = min(events[0][0] if events else math.inf, timer)
        if now == math.inf:
            return played._replace(state=state)
        while events and events[0][0] <= now:
            what = heapq.heappop(events)[2]
            before = state
            if isinstance(what, Request):
                refused = None
                try:
                    state = submit(state, what, policy.limits)
                except UserError as error:
                    refused = played.refused[what.id] = error
                watch.submitted(state, what, refused, now)
            elif isinstance(what, int):
                state = cancel(state, what)
                watch.cancelled(state, what, now)
            elif isinstance(what, tuple):
                plan, outcome = what
                state, ends = fold(state, plan, outcome)
                played.ended.update({end.id: (now, end.reason) for end in ends})
                watch.folded(before, plan, outcome, state, ends, now)
        while True:
            before = state
            plan, state = policy(state, now)
            watch.planned(before, plan, state, now)
            if plan.idle:
                break
            played.plans.append((now, plan))
            outcome = run(plan)
            if plan.ids:
                run_at[plan.worker] = max(now, run_at[plan.worker]) + seconds(plan)
                heapq.heappush(events, (run_at[plan.worker], next(serial), (plan, outcome)))
        timer = plan.wake
        assert timer > now, f"the policy wants to be called again at {timer}, which is not after {now}"
    raise AssertionError(f"{most} events and no end: {state}")
