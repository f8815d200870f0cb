"""What a step did, folded back. Oracle: positions and counts by hand; random outcomes are tried by the laws."""

from __future__ import annotations

import pytest

from jaxserve.kv.memory import Memory
from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.admission import submit
from jaxserve.scheduling.check import check
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult, update

POLICY = Continuous(Limits(rows=4))


def begun(*requests: Request, memory: Memory | None = None, policy: Continuous = POLICY) -> tuple[Plan, State]:
    """The first plan for these requests, and the state after it."""
    state = State.of(memory or Paged.of(40, 4))
    for request in requests:
        state = submit(state, request, policy.limits)
    return policy(state, 0.0)


def test_a_row_that_stops_leaves_and_one_that_reaches_its_limit():
    plan, state = begun(Request(0, (1,) * 3, 5), Request(1, (1,) * 3, 1), Request(2, (1,) * 3, 5))
    assert plan.final == (1,)
    state, ends = update(state, plan, StepResult(((7,), (7,), (0,)), {2: "stop"}))
    assert ends == (End(1, "length"), End(2, "stop")) and list(state.workers[0].rows) == [0]
    assert state.workers[0].memory.in_use == 1
    check(state)


def test_what_the_outcome_says_of_the_last_token_goes_before_the_limit():
    plan, state = begun(Request(0, (1,), 1))
    assert update(state, plan, StepResult(((0,),), {0: "stop"}))[1] == (End(0, "stop"),)


@pytest.mark.parametrize("kind", ["paged", "slots"])
@pytest.mark.parametrize(("accepted", "cached"), [((7,), 4), ((7, 8), 5), ((7, 8, 9), 6)])
def test_verified_drafts_move_a_row_as_far_as_they_were_right(kind: str, accepted: tuple[int, ...], cached: int):
    """A prompt of 3; the first token is the fourth. With two drafts three tokens run, from position 3 on."""
    plan, state = begun(Request(0, (1,) * 3, 9), memory=Paged.of(9, 4) if kind == "paged" else Slots.of(1, 12))
    state, _ = update(state, plan, StepResult(((5,),), drafts={0: 2}))
    plan, state = POLICY(state, 0.0)
    assert (plan.starts, plan.counts, plan.draws, plan.verifies) == ((3,), (3,), (3,), True)
    state, ends = update(state, plan, StepResult((accepted,)))
    assert not ends and state.workers[0].cached == {0: cached} and not state.workers[0].drafts
    plan, _ = POLICY(state, 0.0)
    assert (plan.starts, plan.counts) == ((cached,), (1,))


def test_drafts_that_reach_the_limit_end_the_row():
    """Limit 4: one token with the prompt, so that three are left, and no more than two drafts are of use."""
    plan, state = begun(Request(0, (1,) * 3, 4))
    state, _ = update(state, plan, StepResult(((5,),), drafts={0: 9}))
    plan, state = POLICY(state, 0.0)
    assert plan.counts == (3,) and plan.final == ()
    assert update(state, plan, StepResult(((5, 6),)))[1] == ()
    assert update(state, plan, StepResult(((5, 6, 7),)))[1] == (End(0, "length"),)


def test_drafts_are_left_out_where_they_would_cost_another_row_its_memory():
    """Two rows of 3 tokens with a page of 4 each and none left: the fourth token has room, a draft has not."""
    plan, state = begun(Request(0, (1,) * 3, 2), Request(1, (1,) * 3, 2), memory=Paged.of(2, 4))
    state, _ = update(state, plan, StepResult(((5,), (5,)), drafts={0: 3, 1: 3}))
    plan, _ = POLICY(state, 0.0)
    assert plan.counts == (1, 1) and not plan.preempted


def test_a_row_whose_place_is_not_known_sits_out():
    """Plans are made one ahead. Row 0 verifies drafts; until it is known how many were right, only row 1 goes on."""
    policy = Continuous(Limits(ahead=1))
    plan, state = begun(Request(0, (1,) * 3, 9), Request(1, (1,) * 3, 9), policy=policy)
    state, _ = update(state, plan, StepResult(((5,), (5,)), drafts={0: 2}))
    first, state = policy(state, 0.0)
    second, state = policy(state, 0.0)
    assert first.draws == (3, 1) and second.ids == (1,) and second.starts == (4,)
    assert policy(state, 0.0)[0].idle, "no more than one ahead"
    state, _ = update(state, first, StepResult(((5, 6), (5,)), drafts={0: 1, 1: 1}))
    third, state = policy(state, 0.0)
    assert third.ids == (0, 1) and third.starts == (5, 5) and third.counts == (2, 1), (
        "row 1 was planned on, its drafts are late"
    )


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (StepResult(((5,),)), "shorter|longer|argument"),
        (StepResult(((5,), ())), "draws up to 1 tokens for row 1; an outcome of 0 does not fit it"),
        (StepResult(((5, 6), (5,))), "draws up to 1 tokens for row 0; an outcome of 2 does not fit it"),
    ],
)
def test_an_outcome_that_does_not_fit_the_plan(outcome: StepResult, message: str):
    plan, state = begun(Request(0, (1,) * 3, 9), Request(1, (1,) * 3, 9))
    with pytest.raises(ValueError, match=message):
        update(state, plan, outcome)


def test_a_plan_is_folded_once_and_in_order():
    policy = Continuous(Limits(ahead=1))
    first, state = begun(Request(0, (1,) * 3, 9), policy=policy)
    second, state = policy(state, 0.0)
    with pytest.raises(ValueError, match=r"plan 1 is not the oldest under way on worker 0, which are \[0, 1\]"):
        update(state, second, StepResult(((5,),)))
    state, _ = update(state, first, StepResult(((5,),)))
    with pytest.raises(ValueError, match=r"plan 0 is not the oldest under way on worker 0, which are \[1\]"):
        update(state, first, StepResult(((5,),)))


def test_over_several_steps_a_row_may_end_early_but_not_just_draw_less():
    policy = Continuous(multi_step=4)
    plan, state = begun(Request(0, (1,), 9), Request(1, (1,), 9), policy=policy)
    state, _ = update(state, plan, StepResult(((5,), (5,))))
    plan, state = policy(state, 0.0)
    assert plan.steps == 4 and plan.draws == (4, 4) and not plan.verifies
    with pytest.raises(ValueError, match="draws up to 4 tokens for row 1"):
        update(state, plan, StepResult(((5,) * 4, (5, 0))))
    state, ends = update(state, plan, StepResult(((5,) * 4, (5, 0)), {1: "stop"}))
    assert ends == (End(1, "stop"),) and state.workers[0].cached == {0: 5}


def test_samples_split_after_the_prompt_and_share_its_pages():
    """A prompt of 6 in pages of 4. Each sample runs the sixth token again, and copies the page before; the first goes on in place."""
    plan, state = begun(Request(0, (1,) * 6, 3, samples=3))
    assert plan.ids == plan.forking == (0,)
    state, _ = update(state, plan, StepResult(((5,),)))
    check(state)
    assert state.workers[0].memory.in_use == 2
    plan, state = POLICY(state, 0.0)
    assert (plan.ids, plan.starts, plan.counts) == ((0, 1, 2), (6, 5, 5), (1, 1, 1))
    assert plan.tables == ((0, 2), (0, 3), (0, 1)) and plan.copies == ((1, 2), (1, 3))
    assert plan.moved == ((0, 1), (1, 0), (2, 0)), "the first row's second page is another now; the samples are shown whole"
    assert state.workers[0].memory.in_use == 4
    check(state)


def test_samples_of_an_answer_of_one_token():
    """The first has ended when the others split from it: they still find its pages."""
    plan, state = begun(Request(0, (1,) * 6, 1, samples=2))
    state, ends = update(state, plan, StepResult(((5,),)))
    assert ends == (End(0, "length"),) and list(state.workers[0].rows) == [1]
    plan, state = POLICY(state, 0.0)
    assert plan.ids == plan.final == (1,) and plan.starts == (5,) and plan.copies == ()
    state, ends = update(state, plan, StepResult(((6,),)))
    assert ends == (End(1, "length"),) and state.idle


def test_a_sample_without_a_slot_joins_the_queue():
    """Contiguous memory with two slots for three samples: the third runs the prompt by itself, before requests that never ran."""
    plan, state = begun(
        Request(0, (1,) * 6, 2, samples=3), Request(3, (1,), 1), memory=Slots.of(2, 9), policy=Continuous(Limits(rows=3))
    )
    state, _ = update(state, plan, StepResult(((5,),)))
    check(state)
    assert list(state.workers[0].rows) == [0, 1] and [row.id for row in state.waiting] == [2, 3]
    plan, state = POLICY(state, 0.0)
    assert plan.copies == ((0, 1),) and plan.ids == (0, 1)
    state, _ = update(state, plan, StepResult(((6,), (6,))))
    plan, state = POLICY(state, 0.0)
    assert plan.ids == (1, 2) and plan.starts == (6, 0) and plan.counts == (1, 6)


def test_a_page_of_the_answer_is_found_by_the_next_turn_of_a_chat():
    """Prompt of 3, answer of 6, pages of 4: positions 0 to 7 have run, so two pages are full; the next turn begins with all nine."""
    memory = Paged.of(20, 4, prefix=True)
    plan, state = begun(Request(0, (1, 2, 3), 6), memory=memory)
    for token in (4, 5, 6, 7, 8, 9):
        state, ends = update(state, plan, StepResult(((token,),)))
        check(state)
        if not ends:
            plan, state = POLICY(state, 0.0)
    state = submit(state, Request(1, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 1), POLICY.limits)
    plan, state = POLICY(state, 0.0)
    assert plan.starts == (8,) and plan.counts == (2,)


def test_a_prompt_of_which_every_token_is_wanted_is_run_whole():
    """Case: prompt logprobs with a prefix cache, page + 1 tokens twice. The second finds nothing, and yet shares what it has run."""
    plan, state = begun(Request(0, (1, 2, 3, 4, 5), 9), memory=Paged.of(20, 4, prefix=True))
    state, _ = update(state, plan, StepResult(((6,),)))
    state = submit(state, Request(1, (1, 2, 3, 4, 5), 9, reuse=False), POLICY.limits)
    plan, state = POLICY(state, 0.0)
    assert plan.ids == (0, 1) and plan.starts == (5, 0) and plan.counts == (1, 5) and plan.tables == ((0, 1), (2, 3))
    state, _ = update(state, plan, StepResult(((7,), (6,))))
    plan, state = POLICY(state, 0.0)
    assert plan.tables == ((0, 1), (0, 3)) and plan.moved == ((1, 0),)
    check(state)


def test_an_end_of_a_row_that_is_not_in_the_plan_is_passed_over():
    """The second plan was made while row 0 verified drafts, so it has row 1 alone."""
    policy = Continuous(Limits(ahead=1))
    plan, state = begun(Request(0, (1,) * 3, 9), Request(1, (1,) * 3, 9), policy=policy)
    state, _ = update(state, plan, StepResult(((5,), (5,)), drafts={0: 2}))
    first, state = policy(state, 0.0)
    second, state = policy(state, 0.0)
    state, _ = update(state, first, StepResult(((5,), (5,))))
    state, ends = update(state, second, StepResult(((7,),), {0: "stop"}))
    assert second.ids == (1,) and not ends and list(state.workers[0].rows) == [0, 1]


def test_the_limit_of_a_later_plan_does_not_end_a_row_now():
    """Plans are made one ahead. Row 1 runs its last token in the second plan, whose outcome isn't known when the first is folded."""
    policy = Continuous(Limits(ahead=1))
    plan, state = begun(Request(0, (1,) * 3, 9), Request(1, (1,) * 3, 3), policy=policy)
    state, _ = update(state, plan, StepResult(((5,), (5,)), drafts={0: 2}))
    first, state = policy(state, 0.0)
    second, state = policy(state, 0.0)
    assert first.verifies and first.final == () and second.ids == second.final == (1,)
    state, ends = update(state, first, StepResult(((5,), (5,))))
    assert ends == ()
    assert update(state, second, StepResult(((7,),)))[1] == (End(1, "length"),)
