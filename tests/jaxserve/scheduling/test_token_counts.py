"""Tokens of a step by kind. Oracle: counted by hand."""

from __future__ import annotations

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult
from jaxserve.scheduling.token_counts import TokenCounts


def stepped(scheduler: Scheduler, *tokens: tuple[int, ...], drafts: dict[int, int] | None = None) -> TokenCounts:
    """One step that draws these tokens: the kinds of those that it runs."""
    plan = scheduler.plan(0.0)
    assert plan is not None
    kinds = TokenCounts.of(plan, scheduler.state)
    scheduler.update(plan, StepResult(tokens, drafts=drafts or {}), 0.0)
    return kinds


def test_prompts_decodes_and_drafts():
    """Prompts of 6 and 4 tokens, 7 a step: 6 + 1, then 1 decoded beside the last 3, then 2 decoded, with 2 drafts for the first."""
    scheduler = Scheduler(Chunked(Limits(2), 7), State.of(Paged.of(9, 4)))
    scheduler.submit(Request(0, range(6), 6), 0.0)
    scheduler.submit(Request(1, range(4), 6), 0.0)
    assert stepped(scheduler, (5,), ()) == (7, 0, 0)
    assert stepped(scheduler, (5,), (5,), drafts={0: 2}) == (3, 1, 0)
    assert stepped(scheduler, (5, 5), (5,)) == (0, 2, 2)


def test_a_prompt_of_one_token_is_no_decode():
    scheduler = Scheduler(Continuous(), State.of(Paged.of(9, 4)))
    scheduler.submit(Request(0, range(1), 6), 0.0)
    assert stepped(scheduler, (5,)) == (1, 0, 0)
    assert stepped(scheduler, (5,)) == (0, 1, 0)


def test_several_steps_in_one_plan():
    scheduler = Scheduler(Continuous(multi_step=4), State.of(Paged.of(9, 4)))
    scheduler.submit(Request(0, range(3), 9), 0.0)
    assert stepped(scheduler, (5,)) == (3, 0, 0)
    assert stepped(scheduler, (5,) * 4) == (0, 4, 0)


def test_after_a_preemption_the_answer_so_far_is_prefill():
    """Pages of 2 for two rows of 3 tokens: the third page goes to row 0, so row 1 comes back with 2 + 1 known tokens."""
    scheduler = Scheduler(Continuous(Limits(2)), State.of(Paged.of(3, 2)))
    scheduler.submit(Request(0, range(2), 2), 0.0)
    scheduler.submit(Request(1, range(2), 2), 0.0)
    assert stepped(scheduler, (5,), (5,)) == (4, 0, 0)
    assert stepped(scheduler, (5,)) == (0, 1, 0)
    assert stepped(scheduler, (5,)) == (3, 0, 0)
