"""What a policy of one's own can ask of a plan in the making, and its own preemptions. Oracle: small runs by hand; the laws."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.plan_builder import PlanBuilder
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult
from tests.jaxserve.scheduling.laws import Laws, obeys
from tests.jaxserve.scheduling.workloads import Workload, many, workloads


@dataclasses.dataclass(frozen=True)
class Turns:
    """Where somebody waits for a place, the row that has most in the cache makes one, and who has never run comes in first."""

    limits: Limits = dataclasses.field(default_factory=Limits)
    multi_step: int = 1

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        step = PlanBuilder(self.limits, state, now)
        fresh = [row for row in step.queue if not row.ran]
        if fresh and sum(row.width for row in step.rows.values()) + fresh[0].width > self.limits.rows:
            longest = max(step.rows.values(), key=lambda row: step.cached[row.id])
            step.preempt(longest)
        step.decode()
        for row in step.partial:
            step.prefill(row, 10**9)
        for row in (*fresh, *(row for row in step.queue if row.ran)):
            if row.id in step.queue and not step.admit(row):
                break
        step.repeat(self.multi_step)
        return step.done()


@settings(many, max_examples=200)
@given(load=workloads())
def test_a_policy_that_preempts_by_itself_obeys_all_laws_but_the_order(load: Workload):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Laws, "turn", lambda self, id, now: 0)
        obeys(Turns(load.limits, load.multi_step), load)


def test_a_place_is_made_for_who_has_never_run():
    """One place: at 1 s request 1 comes, and 0 has run for two steps; it goes, comes back when 1 has ended, and may not go again."""
    scheduler = Scheduler(Turns(Limits(rows=1, preemptions=1)), State.of(Paged.of(20, 2)))
    scheduler.submit(Request(0, (1, 2), 5), 0.0)
    seen = []
    for now in range(10):
        if now == 2:
            scheduler.submit(Request(1, (3,), 2), 2.0)
        plan = scheduler.plan(float(now))
        if plan is None:
            break
        seen.append((plan.preempted, plan.admitted, plan.ids))
        if plan.ids:
            scheduler.update(plan, StepResult(tuple((7,) * draws for draws in plan.draws)), now + 0.5)
    assert seen == [
        ((), (0,), (0,)),
        ((), (), (0,)),
        ((0,), (), ()),
        ((), (1,), (1,)),
        ((), (), (1,)),
        ((), (0,), (0,)),
        ((), (), (0,)),
        ((), (), (0,)),
    ]
    assert scheduler.state.idle


def test_what_is_cached_who_drew_and_what_is_under_way():
    """Prompts of 3 and 1 tokens; the first needs two plans for its own, so at 1 s only the second has drawn."""
    limits = Limits(rows=2, ahead=1)
    state = State.of(Paged.of(20, 2))
    scheduler = Scheduler(Turns(limits), state)
    for request in (Request(0, (1, 2, 3), 4), Request(1, (9,), 4)):
        scheduler.submit(request, 0.0)
    step = PlanBuilder(limits, scheduler.state, 0.0)
    first, second = step.queue
    assert step.admit(first, 2) == 2 and step.admit(second) == 1
    assert dict(step.cached) == {0: 2, 1: 1} and not step.drew and step.flying == ()
    plan, state = step.done()
    after = PlanBuilder(limits, state, 1.0)
    assert dict(after.drew) == {1: 0.0} and after.flying == (plan,) and after.now == 1.0
    assert not after.preempt(after.rows[1]), "the plan that is under way may end it"
    assert after.decode() == 1 and after.prefill(after.partial[0], 9) == 1
    _, state = after.done()
    assert dict(PlanBuilder(limits, state, 2.0).drew) == {0: 1.0, 1: 1.0}


def test_who_can_be_preempted():
    """Not a row that is in the plan, waits, or has gone as often as it may; and nobody is admitted beside."""
    limits = Limits(rows=2, preemptions=1)
    scheduler = Scheduler(Turns(limits), State.of(Paged.of(20, 2)))
    for request in (Request(0, (1, 2), 4), Request(1, (9,), 4), Request(2, (9,), 4)):
        scheduler.submit(request, 0.0)
    plan = scheduler.plan(0.0)
    assert plan is not None and plan.admitted == (0, 1)
    scheduler.update(plan, StepResult(((5,), (5,))), 0.5)
    step = PlanBuilder(limits, scheduler.state, 1.0)
    (third,) = step.queue
    assert not step.preempt(third)
    row = step.rows[1]
    assert step.preempt(row) and step.preempted == [1] and 1 not in step.cached and not step.preempt(row)
    assert step.admit(third) == 0
    assert step.decode() == 1 and not step.preempt(step.rows[0])
    _, state = step.done()
    assert not PlanBuilder(limits, state, 2.0).drew.get(1)
    again = PlanBuilder(limits, state, 2.0)
    assert [row.id for row in again.queue] == [1, 2] and again.queue[0].preemptions == 1
