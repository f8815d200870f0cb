"""Who has to go when memory is short, and when it comes back. Oracle: small pools filled by hand."""

from __future__ import annotations

import pytest

from jaxserve.kv.memory import Memory
from jaxserve.kv.paged import Paged
from jaxserve.scheduling.admission import submit
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.queue import Queue
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import update
from tests.jaxserve.scheduling.clock import one_token, play


def plans(policy: Policy, memory: Memory, requests: list[Request]) -> list[Plan]:
    played = play(policy, State.of(memory), requests)
    assert played.state.idle and len(played.ended) == len(requests)
    return [plan for _, plan in played.plans]


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("prefix", [False, True])
def test_three_equal_requests_and_room_for_two(most: int, prefix: bool):
    """Case: preemption starvation. All finish, and none is preempted more often than allowed."""
    requests = [Request(i, (i,) * 4, 8) for i in range(3)]
    made = plans(Continuous(Limits(preemptions=most)), Paged.of(11, 2, prefix=prefix), requests)
    lost = [id for plan in made for id in plan.preempted]
    assert 0 not in lost and 2 in lost and all(lost.count(id) <= most for id in range(3))


def test_the_last_admitted_goes_first_and_all_come_back_in_order():
    """Four rows with a prompt of one token and lives of five, in eight pages of one.

    After two steps each has two pages. Row 0 needs a third: 3 goes. 0 and 1 get theirs; 2 finds none, and is the last itself. 0 and 1
    have four each when 0 needs its fifth: 1 goes, and 0 ends. 1 and 2 come back with five and three pages, 3 when 1 has ended; it goes
    once more when 2 needs its fifth.
    """
    made = plans(Continuous(), Paged.of(8, 1), [Request(i, (1,), 5) for i in range(4)])
    assert [plan.preempted for plan in made if plan.preempted] == [(3, 2), (1,), (3,)]
    assert [plan.admitted for plan in made if plan.admitted] == [(0, 1, 2, 3), (1, 2), (3,), (3,)]
    assert not any(plan.preempted and plan.admitted for plan in made)
    back = next(plan for plan in made if plan.admitted == (1, 2))
    # Row 2 had run two tokens and drawn a second one when it went: its prompt and its answer so far are run again, and one is drawn.
    assert [(row.id, row.start, row.count, row.draws) for row in back.rows] == [(1, 0, 5, 1), (2, 0, 3, 1)]
    assert back.final == (1,)


def test_nobody_overtakes_who_was_preempted():
    requests = [Request(i, (1,), 6) for i in range(3)] + [Request(3, (1,), 1, arrival=2.5)]
    made = plans(Continuous(), Paged.of(7, 1), requests)
    order = [id for plan in made for id in plan.admitted]
    assert order.index(3) > max(i for i, id in enumerate(order) if id == 2)


def test_the_lower_priority_goes_before_the_later_admission():
    requests = [Request(0, (1,), 6, priority=2), Request(1, (1,), 6, arrival=0.5, priority=1)]
    made = plans(Continuous(), Paged.of(7, 1), requests)
    assert {id for plan in made for id in plan.preempted} == {0}


def test_a_prompt_that_has_begun_gives_way_to_those_that_decode():
    """Row 1 is in its prompt of six when row 0 needs a page: it goes, though it has done work."""
    requests = [Request(0, (1,), 9), Request(1, (1,) * 6, 1, arrival=0.5)]
    made = plans(Chunked(Limits(rows=2), 2), Paged.of(9, 1), requests)
    gone = next(plan for plan in made if plan.preempted)
    assert gone.preempted == (1,) and gone.ids == (0,)
    starts = [row.start for plan in made for row in plan.rows if row.id == 1]
    assert starts == [0, 1, 0, 2, 4], "beside row 0 one token a step, then two"


def test_after_its_last_preemption_a_request_keeps_room_for_its_whole_life():
    requests = [Request(0, (1,), 9), Request(1, (1,), 9)]
    made = plans(Continuous(Limits(preemptions=1)), Paged.of(12, 1), requests)
    assert [plan.preempted for plan in made if plan.preempted] == [(1,)]
    back = next(plan for plan in made if plan.admitted == (1,))
    assert len(back.tables[back.ids.index(1)]) == 9


def test_who_was_preempted_too_often_is_no_victim_though_it_came_last():
    """Row 1 has room for its whole life and has been preempted before, once, as often as allowed. Row 0 is short: it goes itself."""
    policy = Continuous(Limits(preemptions=1))
    state = State.of(Paged.of(6, 1))
    state = submit(state, Request(0, (1,), 6), policy.limits)
    plan, state = policy(state, 0.0)
    state, _ = update(state, plan, one_token(plan))
    state = submit(state, Request(1, (1,) * 3, 2), policy.limits)
    state = state._replace(waiting=Queue().add(state.waiting[0]._replace(preemptions=1)))
    plan, state = policy(state, 0.0)
    state, _ = update(state, plan, one_token(plan))
    assert [len(row.table) for row in state.workers[0].rows.values()] == [2, 4]
    plan, state = policy(state, 0.0)
    assert plan.preempted == (0,) and plan.ids == (1,)


def test_a_late_row_that_was_admitted_is_late_no_more():
    """Row 2 waits longer than 1.5 and falls behind; once it has run and lost its memory, it comes back before those that never ran."""
    limits = Limits(rows=2, queue=QueueRule(timeout=1.5, late="delay"))
    requests = [Request(0, (1,), 9), Request(1, (1,), 2), Request(2, (1,) * 4, 6), Request(3, (1,), 1, arrival=6.5)]
    made = plans(Continuous(limits), Paged.of(10, 1), requests)
    assert [plan.admitted for plan in made if plan.admitted] == [(0, 1), (2,), (2, 3)]
    assert (2,) in [plan.preempted for plan in made]


def test_no_memory_is_taken_while_a_step_runs_that_may_end_a_row():
    """A plan ahead would have to preempt; it waits, and the step that runs turns out to end row 0, so that nobody need go."""
    policy = Continuous(Limits(ahead=1))
    state = State.of(Paged.of(6, 1))
    for id in range(2):
        state = submit(state, Request(id, (1,), 6), policy.limits)
    made = []
    for _ in range(3):
        plan, state = policy(state, 0.0)
        made.append(plan)
        if len(made) > 1:
            state, _ = update(state, made[-2], one_token(made[-2]))
    assert [plan.starts for plan in made] == [(0, 0), (1, 1), (2, 2)]
    waits, state = policy(state, 0.0)
    assert waits.idle and not waits.preempted
    outcome = one_token(made[-1])
    state, ends = update(state, made[-1], outcome.__class__(outcome.tokens, {0: "stop"}))
    assert [end.id for end in ends] == [0]
    plan, state = policy(state, 0.0)
    assert plan.ids == (1,) and not plan.preempted
