"""The driver. Oracle: the pure functions that it is made of, called again on the states that it showed, and hand arithmetic."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.admission import cancel, submit
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import QueueFull, Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult, update
from models.errors import UserError
from tests.jaxserve.scheduling.laws import obeys
from tests.jaxserve.scheduling.runs import Run, runs
from tests.jaxserve.scheduling.workloads import many


class Chain(Observer):
    """Each state must be the one before, changed by what is said to have happened."""

    def started(self, policy: Policy, state: State) -> None:
        self.policy, self.state = policy, state

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        if refused is None:
            assert state == submit(self.state, request, self.policy.limits)
        else:
            assert state is self.state
            with pytest.raises(type(refused), match=r"^request"):
                submit(self.state, request, self.policy.limits)
        self.state = state

    def cancelled(self, state: State, id: int, now: float) -> None:
        assert state == cancel(self.state, id)
        self.state = state

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        assert before is self.state and (plan, after) == self.policy(before, now)
        self.state = after

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        assert before is self.state and (after, ends) == update(before, plan, outcome)
        self.state = after


@settings(many, max_examples=60)
@given(run=runs())
def test_it_is_the_pure_functions_one_after_the_other(run: Run):
    chain = Chain()
    played = obeys(run.policy, run.load, memories=run.workers, log=chain)
    assert played.state is chain.state


class Recorder(Observer):
    """What was seen, in order."""

    def __init__(self, seen: list[tuple[Any, ...]], name: str = ""):
        self.seen, self.name = seen, name

    def started(self, policy: Policy, state: State) -> None:
        self.seen.append((self.name, "started"))

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        self.seen.append((self.name, "submitted", request.id, refused, now))

    def cancelled(self, state: State, id: int, now: float) -> None:
        self.seen.append((self.name, "cancelled", id, now))

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        self.seen.append((self.name, "planned", plan.ids, now))

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self.seen.append((self.name, "folded", ends, now))

    def stepped(self, record: StepRecord) -> None:
        self.seen.append((self.name, "stepped", record))


def test_a_short_life():
    """One row at a time: request 0 draws two tokens, request 1 waits, request 2 is one too many, request 1 goes away."""
    seen: list[tuple[Any, ...]] = []
    scheduler = Scheduler(Continuous(Limits(1, queue=QueueRule(1))), State.of(Paged.of(4, 4)), Recorder(seen))
    scheduler.submit(Request(0, (5, 6), 2), 0.5)
    first = scheduler.plan(1.0)
    assert first is not None and first.ids == (0,)
    scheduler.submit(Request(1, (5,), 2), 1.5)
    before = scheduler.state
    with pytest.raises(QueueFull) as full:
        scheduler.submit(Request(2, (5,), 2), 2.0)
    assert scheduler.state is before
    assert scheduler.plan(2.5) is None  # one step at a time
    assert scheduler.update(first, StepResult(((7,),)), 3.0) == ()
    scheduler.cancel(1, 3.5)
    second = scheduler.plan(4.0)
    assert second is not None and (second.ids, second.starts) == ((0,), (2,))
    assert scheduler.update(second, StepResult(((8,),)), 5.0) == (End(0, "length"),)
    assert scheduler.plan(5.5) is None and scheduler.state.idle
    assert [event[1:] for event in seen] == [
        ("started",),
        ("submitted", 0, None, 0.5),
        ("planned", (0,), 1.0),
        ("submitted", 1, None, 1.5),
        ("submitted", 2, full.value, 2.0),
        ("planned", (), 2.5),
        ("folded", (), 3.0),
        ("cancelled", 1, 3.5),
        ("planned", (0,), 4.0),
        ("folded", (End(0, "length"),), 5.0),
        ("planned", (), 5.5),
    ]


def test_it_says_when_to_ask_again():
    """A batch of two may be waited for until 3 s after the arrival at 1 s; nothing is waited for once it has left."""
    scheduler = Scheduler(Dynamic(Limits(2), delay=3.0), State.of(Paged.of(4, 4)))
    assert scheduler.wake == math.inf
    scheduler.submit(Request(0, (5,), 1, arrival=1.0), 1.0)
    assert scheduler.plan(1.0) is None and scheduler.wake == 4.0
    plan = scheduler.plan(4.0)
    assert plan is not None and plan.ids == (0,) and scheduler.wake == math.inf


def test_a_plan_is_run_once():
    scheduler = Scheduler(Continuous(), State.of(Paged.of(4, 4)))
    scheduler.submit(Request(0, (5,), 3), 0.0)
    plan = scheduler.plan(0.0)
    assert plan is not None
    scheduler.update(plan, StepResult(((1,),)), 1.0)
    with pytest.raises(ValueError, match="plan 0 is not the oldest under way"):
        scheduler.update(plan, StepResult(((1,),)), 1.0)


def test_several_watches_see_the_same_in_turn():
    seen: list[tuple[Any, ...]] = []
    watch = Observers(Recorder(seen, "a"), Recorder(seen, "b"))
    scheduler = Scheduler(Continuous(), State.of(Paged.of(4, 4)), watch)
    scheduler.submit(Request(0, (5,), 1), 0.0)
    scheduler.cancel(7, 0.0)
    plan = scheduler.plan(0.0)
    assert plan is not None
    scheduler.update(plan, StepResult(((1,),)), 1.0)
    watch.stepped(StepRecord(0, 0, plan.digest, ("decode 1",), 1, 0, 1, 0, 0, 1, 1, None, 0.01, 0.001, 1.0))
    assert [event[1] for event in seen[::2]] == ["started", "submitted", "cancelled", "planned", "folded", "stepped"]
    assert [(a[0], *a[1:]) for a in seen[::2]] == [("a", *b[1:]) for b in seen[1::2]]


class Full(Observer):
    """A log on a full disk."""

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        raise UserError("no space left")

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        raise UserError("no space left")


def test_what_cannot_be_written_down_has_not_happened():
    """Else the engine had a row without a client."""
    full = Scheduler(Continuous(), State.of(Paged.of(4, 4)), Full())
    with pytest.raises(UserError):
        full.submit(Request(0, (1,), 1), 0.0)
    assert full.state.idle and full.state.next_id == 0
    full.state = before = submit(full.state, Request(0, (1,), 1), Limits())
    with pytest.raises(UserError):
        full.plan(0.0)
    assert full.state is before
