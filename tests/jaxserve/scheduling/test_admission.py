"""Who comes in, who goes before the end, and who is refused. Oracles: cases of shared reports by hand, with the right values."""

from __future__ import annotations

import math

import pytest

from jaxserve.kv.memory import Memory
from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.admission import cancel, submit
from jaxserve.scheduling.check import check
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import QueueFull, Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult, update
from models.errors import UserError
from tests.jaxserve.scheduling.clock import one_token, play


@pytest.mark.parametrize("memory", [Paged.of(5, 4), Slots.of(2, 20)])
@pytest.mark.parametrize(("context", "limit"), [(None, 20), (12, 12), (99, 20)])
def test_a_prompt_may_be_as_long_as_the_limit_and_no_longer(memory: Memory, context: int | None, limit: int):
    """Case: limit - 1, limit, limit + 1 tokens: an error for the last one only, and the engine lives on."""
    requests = [Request(i, range(limit - 1 + i), 1) for i in range(3)] + [Request(3, range(3), 2)]
    played = play(Continuous(Limits(context=context)), State.of(memory), requests)
    assert sorted(played.ended) == [0, 1, 3] and list(played.refused) == [2]
    message = str(played.refused[2])
    assert f"needs room for {limit + 1}, but the limit is {limit};" in message and "\n" not in message
    assert ("raise the context limit" if limit == 12 else "raise the KV pool") in message
    assert played.state.idle and played.state.workers[0].memory.in_use == 0


def test_the_answer_counts_too_but_for_its_last_token():
    state, limits = State.of(Paged.of(5, 4)), Limits()
    assert submit(state, Request(0, range(11), 10), limits).waiting
    with pytest.raises(UserError, match="prompt of 11 tokens and up to 11 are to follow, which needs room for 21"):
        submit(state, Request(0, range(11), 11), limits)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Request(7, [], 1), "request 7 has an empty prompt; give it at least one token"),
        (lambda: Request(7, [1], 0), "request 7: limit is 0; it must be a whole number of at least 1"),
        (lambda: Request(7, [1], 1, samples=0), "request 7: samples is 0; it must be a whole number of at least 1"),
        (lambda: Request(7, [1], 1, arrival=math.inf), "request 7: arrival is inf; it must be finite, in s"),
        (lambda: Request(7, [1], 1, deadline=math.nan), "request 7: deadline is nan; it must be in s"),
        (lambda: Limits(rows=0), "limits: rows is 0; it must be a whole number of at least 1"),
        (lambda: Limits(prefill_tokens=0), "limits: prefill_tokens is 0; it must be a whole number of at least 1"),
        (lambda: Limits(context=0), "limits: context is 0"),
        (lambda: Limits(preemptions=0), "limits: preemptions is 0"),
        (lambda: Limits(ahead=-1), "limits: ahead is -1; it must be a whole number of at least 0"),
    ],
)
def test_what_could_never_be_served_is_refused_before_it_is_anywhere(make, message: str):
    """Case: the empty prompt, and its kind."""
    with pytest.raises(UserError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_refused_request_leaves_the_state_as_it_was():
    limits = Limits(rows=2, queue=QueueRule(size=1))
    state = submit(State.of(Paged.of(5, 4)), Request(4, range(3), 2), limits)
    for request, error in [
        (Request(5, range(30), 1), UserError),
        (Request(5, range(3), 1, samples=3), UserError),
        (Request(4, range(3), 1), UserError),
        (Request(5, range(3), 1), QueueFull),
    ]:
        with pytest.raises(error) as caught:
            submit(state, request, limits)
        assert type(caught.value) is error
    assert state == submit(State.of(Paged.of(5, 4)), Request(4, range(3), 2), limits)
    with pytest.raises(UserError, match="request id 5 was given out before; the next free one is 6"):
        submit(submit(state, Request(5, [1], 1), Limits()), Request(5, [1], 1), Limits())


def test_samples_take_ids_of_their_own():
    state = submit(State.of(Paged.of(5, 4)), Request(0, [1], 1, samples=3), Limits())
    assert state.next_id == 3


POLICIES = [Continuous(Limits(rows=24)), Chunked(Limits(rows=24), 24)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prefix", [False, True])
def test_nothing_leaks(policy: Policy, prefix: bool):
    """Case: 24 requests each one token over a page, `max_tokens` 1 or more, some aborted between two chunks of their prompt."""
    requests = [Request(i, range(100 * i, 100 * i + 17), 1 + i % 3) for i in range(24)]
    played = play(
        policy, State.of(Paged.of(60, 16, prefix=prefix)), requests, cancels=[(0.5, 0), (1.5, 3), (2.5, 5), (9.5, 20)]
    )
    memory = played.state.workers[0].memory
    assert memory.in_use == 0 and isinstance(memory, Paged)
    idle = memory.prefix.idle if memory.prefix else 0
    assert memory.pages.free + idle == 60 and (idle > 0) == prefix
    check(played.state)
    gone = {0, 3, 5, 20} - set(played.ended)
    assert set(played.ended) == set(range(24)) - gone and 0 in gone


@pytest.mark.parametrize("prefix", [False, True])
def test_cancelling_is_possible_at_any_moment(prefix: bool):
    """Waiting, between two chunks of the prompt, decoding, while a step runs, twice, after the end, and of an id that never was."""
    policy = Chunked(Limits(rows=2), 4)
    state = State.of(Paged.of(20, 2, prefix=prefix))
    for id in range(5):
        state = submit(state, Request(id, range(7 * id, 7 * id + 7), 9), policy.limits)
    state = cancel(state, 1)  # waits
    plan, state = policy(state, 0.0)
    state, _ = update(state, plan, one_token(plan))
    assert plan.ids == (0,) and plan.draws == (0,)
    state = cancel(state, 0)  # is half-way through its prompt
    check(state)
    assert state.workers[0].memory.in_use == 0 and [row.id for row in state.waiting] == [2, 3, 4]
    for _ in range(3):
        plan, state = policy(state, 0.0)
        state, _ = update(state, plan, one_token(plan))
    assert state.workers[0].cached[2] > 7
    before = policy(state, 0.0)
    plan, running = before
    state = cancel(running, 2)  # decodes, and a step runs with it
    check(state)
    state, ends = update(state, plan, StepResult(tuple((5,) * draws for draws in plan.draws), {2: "stop"}))
    assert not ends and 2 not in state.workers[0].rows
    assert cancel(cancel(state, 2), 99) == state
    assert policy(running, 0.0)[0].idle, "the plan under way is not forgotten in the state before the cancellation"
    check(state)


def test_cancelling_before_samples_split_cancels_them_all_and_after_it_one():
    policy = Continuous()
    start = submit(State.of(Paged.of(20, 2)), Request(0, range(5), 9, samples=3), policy.limits)
    plan, state = policy(start, 0.0)
    early, ends = update(cancel(state, 0), plan, one_token(plan))
    assert early.idle and not ends and early.workers[0].memory.in_use == 0
    late, _ = update(state, plan, one_token(plan))
    late = cancel(late, 0)
    assert list(late.workers[0].rows) == [1, 2]
    check(late)


def test_a_request_that_is_not_admitted_by_its_deadline_is_dropped():
    """One row at a time, three steps each. Request 1 would be admitted at 3; its deadline is 2. Request 2 has until 3, which is too early
    by nothing, so that it goes too; request 3 has until 3.5. Whoever has been admitted is never dropped."""
    requests = [
        Request(0, (1,), 3, deadline=0.5),
        Request(1, (1,), 3, deadline=2.0),
        Request(2, (1,), 3, deadline=3.0),
        Request(3, (1,), 3, deadline=3.5),
    ]
    played = play(Continuous(Limits(rows=1)), State.of(Paged.of(20, 2)), requests)
    assert [(at, plan.expired) for at, plan in played.plans if plan.expired] == [(2.0, (1,)), (3.0, (2,))]
    assert {id: at for id, (at, _) in played.ended.items()} == {0: 3.0, 3: 6.0}


def test_who_was_preempted_is_not_dropped_for_its_deadline():
    requests = [Request(0, (1,) * 2, 9), Request(1, (1,) * 2, 9, deadline=0.5)]
    played = play(Continuous(), State.of(Paged.of(12, 1)), requests)
    assert any(plan.preempted == (1,) for _, plan in played.plans)
    assert set(played.ended) == {0, 1} and not any(plan.expired for _, plan in played.plans)


def test_the_in_flight_cap_counts_samples_before_they_split():
    requests = [Request(0, (1,), 2, samples=3), Request(3, (1,), 2)]
    plans = [plan for _, plan in play(Continuous(Limits(rows=3)), State.of(Paged.of(50, 1)), requests).plans]
    assert [plan.ids for plan in plans] == [(0,), (0, 1, 2), (1, 2, 3), (3,)]
