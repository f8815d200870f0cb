"""Public reports that this engine must not repeat, one test a kind, with the smallest input that shows it.

Here those of memory and of limits; those of what is drawn are in `test_answer_cases.py`.

Of those in which the engine has no part the tests of the layer below are the proof:

| kind | test |
|---|---|
| partial allocation | tests/jaxserve/kv/test_block_allocator.py, tests/jaxserve/kv/test_memory.py; and below |
| RoPE scaling dropped | tests/models/test_rotary.py::test_table_is_right_near_and_far |
| tied and untied heads confused | tests/models/checkpoint/test_load.py::test_head_is_tied_untied_or_redundant |
| head_dim times heads != hidden | tests/models/config/test_model_config.py::test_head_dim_is_its_own_number |
| the same, in logits | tests/jaxserve/test_architectures.py::test_logits_equal_transformers |
| neighbours change the answer, 64 rows, one step | tests/jaxserve/programs/test_batching.py::test_across_changes_of_bucket |
| donated buffer reused | tests/jaxserve/programs/test_program_set.py::test_a_donated_pool_explains_itself |

Oracles: the dense float64 pass (`proofs.proved`, `proofs.greedy_answer`), the same request alone, and counts by hand.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.state import State
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.speculative.ngram import NGram
from models.errors import UserError
from tests.jaxserve.engines import (
    ALL_KIT,
    CONTEXT,
    LINK,
    PAGE,
    PLAIN_KIT,
    ROWS,
    UNITS,
    WIDTH,
    Books,
    Kit,
    engine,
    nothing_left,
    numbered,
    run,
)
from tests.jaxserve.proofs import FIVE, answers, greedy_answer, proved, served


def test_every_row_of_the_table_above_is_a_test():
    root, text = Path(__file__).parents[3], __doc__ or ""
    files = re.findall(r"(tests/\S+?\.py)(?:::(\w+))?", text)
    assert len(files) == 8
    for file, name in files:
        assert f"def {name}" in (root / file).read_text(encoding="utf-8"), (file, name)


@pytest.mark.parametrize("prefix", [False, True])
def test_page_leak(prefix: bool):
    """24 requests, each one token over a page; of one token; and aborted between two chunks of their prompt."""
    one = engine(Chunked(ROWS, 4), prefix=prefix)
    handles = [one.submit(numbered(i, PAGE + 1), SamplingParams(max_tokens=1 + i % 2)) for i in range(24)]
    for turn in itertools.count():
        if one.idle:
            break
        one.step()
        half = [handle for handle in handles if not handle.finished and not handle.answers[0].tokens]
        if turn % 5 == 2 and half:
            one.abort(half[0])
            assert half[0].answers[0].finish == ("abort", None)
    assert sum(handle.answers[0].finish == ("abort", None) for handle in handles) > 3
    nothing_left(one)


class Refusals(Books):
    """Memory, whenever a plan admitted or grew nobody."""

    refused = 0

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        super().planned(before, plan, after, now)
        if before.waiting and after.waiting == before.waiting and not plan.moved:
            assert after.workers[0].memory == before.workers[0].memory
            self.refused += 1


@pytest.mark.parametrize("ahead", [0, 1])
def test_partial_allocation(ahead: int):
    """10 pages: one row takes 7 of them, so that another that needs 4 gets none at all, again and again, until the first has ended."""
    books = Refusals()
    one = engine(Continuous(Limits(rows=4, ahead=ahead)), lent=WIDTH, books=books)
    first = one.submit(numbered(0, 7 * PAGE - 3), SamplingParams(max_tokens=4, ignore_eos=True))
    second = one.submit(numbered(1, 4 * PAGE), FIVE)
    run(one)
    assert books.refused >= 3 and second.token_times[0][0] > first.token_times[0][-1]
    proved(first)
    proved(second)
    nothing_left(one)


def test_growth_on_a_full_pool():
    """Both rows fill the pool, and neither can have another page before the other is through."""
    one = engine(Continuous(Limits(rows=4, ahead=1)), lent=WIDTH)
    served([numbered(i, 5 * PAGE) for i in range(2)], SamplingParams(max_tokens=12, ignore_eos=True), one)
    assert one.status().preempted >= 1


class Cached(Books):
    """Where each row began."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: dict[int, int] = {}

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        super().updated(before, plan, outcome, after, ends, now)
        for id, start in zip(plan.ids, plan.starts, strict=True):
            self.starts.setdefault(id, start)


def test_full_prefix_hit():
    """A prompt of exactly two pages, twice: of a prompt that is known to its end the last token is computed still."""
    books = Cached()
    one = engine(Continuous(ROWS), prefix=True, books=books)
    prompt = numbered(0, 2 * PAGE)
    first, second = (served([prompt], FIVE, one)[0] for _ in range(2))
    assert first.answers[0].tokens == second.answers[0].tokens == greedy_answer(prompt, 5)
    assert books.starts == {0: 0, 1: PAGE}  # only whole pages are shared


BURSTS = [
    (Static(ROWS), PLAIN_KIT, {}),
    (Continuous(ROWS), PLAIN_KIT, {}),
    (Continuous(ROWS), ALL_KIT, {"drafter": NGram(2)}),
    (Chunked(Limits(rows=4, ahead=1), 9), ALL_KIT, {}),
    (Disaggregated(LINK, ROWS), PLAIN_KIT, {"workers": 2}),
]


@pytest.mark.parametrize(("policy", "kit", "more"), BURSTS)
@pytest.mark.parametrize("own", [0, 1, 3])
def test_a_burst_that_begins_alike(policy: Policy, kit: Kit, more: dict, own: int):
    """Four prompts of two pages that all begin with and some tokens of their own, submitted together; with none, they are equal."""
    begin, ends = numbered(0, 2 * PAGE + (own == 0)), [numbered(i, own) if own else [] for i in range(1, 5)]
    prompts = [begin + end for end in ends]
    one = engine(policy, kit, prefix=True, **more)
    assert answers(served(prompts, FIVE, one)) == [greedy_answer(prompt, 5) for prompt in prompts]
    assert one.status().cached == 3 * 2 * PAGE


def test_cache_hit_differs_from_miss():
    """The same prompt cold, warm, and after others have forced it out; the last two pages are decoded ones."""
    one = engine(Continuous(ROWS), prefix=True, lent=WIDTH)
    prompt = numbered(0, 3 * PAGE + 1)
    expected = served([prompt], SamplingParams(max_tokens=12))[0].answers[0].tokens
    for _ in range(2):
        assert answers(served([prompt], SamplingParams(max_tokens=12), one)) == [expected]
    warm = one.status().cached
    assert warm == 3 * PAGE
    longer = prompt + expected[:8]
    assert answers(served([longer], FIVE, one)) == answers(served([longer])), "KV of an answer is KV like any other"
    assert one.status().cached == warm + 5 * PAGE
    served([numbered(i, CONTEXT - 4) for i in (5, 6)], FIVE, one)  # they fill the pool
    before = one.status().cached
    assert answers(served([prompt], SamplingParams(max_tokens=12), one)) == [expected]
    assert one.status().cached == before, "it was to be forgotten"


def test_too_long_prompt():
    """One below the limit, at it, and one above: only the last is refused, and the engine lives on."""
    one = engine(Continuous(ROWS))
    for size, room in ((CONTEXT - 1, 2), (CONTEXT, 1)):
        (handle,) = served([numbered(0, size)], SamplingParams(ignore_eos=True), one)
        assert len(handle.answers[0].tokens) == room and handle.answers[0].finish == ("length", None)
    with pytest.raises(UserError, match=f"a prompt of {CONTEXT + 1} tokens .* the limit is {CONTEXT}; shorten it"):
        one.submit(numbered(0, CONTEXT + 1))
    served([numbered(1, 5)], FIVE, one)


def test_empty_prompt():
    one = engine(Continuous(ROWS))
    with pytest.raises(UserError, match="the prompt is empty; give it at least one token"):
        one.submit([])
    nothing_left(one)
    served([numbered(1, 5)], FIVE, one)


@pytest.mark.parametrize("prefix", [False, True])
def test_preemption_starvation(prefix: bool):
    """Three equal requests and room for two: all finish, and none loses its memory more often than the limit says.

    The limit is 1: without it the last of them would lose it twice where nothing is remembered.
    """
    books = Books()
    one = engine(Continuous(Limits(rows=4, preemptions=1)), lent=2 * 5 + 1, prefix=prefix, books=books)
    handles = served([numbered(0, 9)] * 3, SamplingParams(0.8, max_tokens=30, ignore_eos=True, seed=2), one)
    lost = [id for plan in books.plans for id in plan.preempted]
    assert lost and max(lost.count(handle.id) for handle in handles) == 1
    assert len({tuple(tokens) for tokens in answers(handles)}) == 1


def test_prompt_logprobs_with_prefix_cache():
    """A page and a token, twice: what was asked of every token is computed for every token, known or not."""
    one = engine(Continuous(ROWS), ALL_KIT, prefix=True)
    params = dataclasses.replace(FIVE, prompt_logprobs=1)
    first, second = (served([numbered(0, PAGE + 1)], params, one)[0] for _ in range(2))
    assert first.prompt_logprobs is not None and first.prompt_logprobs == second.prompt_logprobs
    (third,) = served([numbered(0, PAGE + 1)], FIVE, one)
    assert one.status().cached == PAGE and third.answers[0].tokens == first.answers[0].tokens


def test_every_page_of_the_pool_can_be_used():
    """What `Short` lends in other tests is less than there is; here it is all."""
    one = engine(Continuous(ROWS))
    served([numbered(i, CONTEXT) for i in range(4)], SamplingParams(max_tokens=1), one)
    assert max(record.pages for record in one.records) == 4 * WIDTH <= UNITS and PLAIN_KIT.units == UNITS
