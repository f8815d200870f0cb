"""What may be asked. Oracles: the limits by hand, one below, at, and above; refusals leave the engine as it was."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jaxserve.features import PLAIN, Features
from jaxserve.intake import Intake
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.request import QueueFull
from models.errors import UserError
from tests.jaxserve.engines import CONTEXT, EOS, engine, model, nothing_left, numbered, run
from tests.jaxserve.proofs import greedy_answer


def intake(features: Features = PLAIN, context: int = CONTEXT) -> Intake:
    return Intake(model(), features, context)


@pytest.mark.parametrize("size", [1, CONTEXT - 1, CONTEXT])
def test_an_answer_may_fill_the_context(size: int):
    """The last token that is drawn is never run, so it needs no place."""
    room = CONTEXT - size + 1
    assert intake().limit(numbered(0, size), SamplingParams()) == room
    assert intake().limit(numbered(0, size), SamplingParams(max_tokens=room)) == room
    with pytest.raises(UserError, match=f"needs room for {CONTEXT + 1}, but the limit is {CONTEXT}; shorten it"):
        intake().limit(numbered(0, size), SamplingParams(max_tokens=room + 1))


BAD: list[tuple[Any, Any, str]] = [
    ([], SamplingParams(), "the prompt is empty; give it at least one token"),
    ("", SamplingParams(), "the prompt is empty"),
    (
        numbered(0, CONTEXT + 1),
        SamplingParams(),
        f"a prompt of {CONTEXT + 1} tokens with up to 1 to follow .* limit is {CONTEXT}",
    ),
    ([5, 96], SamplingParams(), "the prompt has token 96; ids lie in 0 to 95"),
    ([-1], SamplingParams(), "the prompt has token -1"),
    ([1.5], SamplingParams(), r"the prompt is '\[1.5\]'; give a text, or token ids as whole numbers"),
    (["a"], SamplingParams(), "give a text, or token ids"),
    ([[1, 2]], SamplingParams(), "give a text, or token ids"),
    (7, SamplingParams(), "the prompt is '7'; give a text, or token ids"),
    (None, SamplingParams(), "the prompt is 'None'; give a text"),
    ([1], SamplingParams(frequency_penalty=1), "asks for penalties"),
    ([1], SamplingParams(logprobs=1), "1 logprobs; the limit is None"),
    ([1], SamplingParams(prompt_logprobs=0), "0 prompt_logprobs"),
    ([1], SamplingParams(logit_bias={5: 1.0}), "1 biased or held back tokens; the limit is 0"),
    ([1], SamplingParams(stop_ids=[96]), "stop_ids names token 96; the vocabulary ends at 95"),
    ([1], {"max_tokens": 4}, r"params is .*max_tokens.*; give SamplingParams, such as SamplingParams\(max_tokens=16\)"),
    ([1], SamplingParams(n=5), "asks for 5 samples, but at most 4 rows"),
]


@pytest.mark.parametrize(("prompt", "params", "message"), BAD, ids=lambda value: repr(value)[:30])
def test_what_can_not_be_served_is_refused_in_one_line_and_leaves_no_trace(prompt: Any, params: Any, message: str):
    one = engine(Continuous(Limits(rows=4)))
    with pytest.raises(UserError, match=message) as error:
        one.submit(prompt, params)
    assert "\n" not in str(error.value)
    nothing_left(one)
    handle = one.submit(numbered(3, 5), SamplingParams(max_tokens=4, ignore_eos=True))
    assert handle.id == 0
    run(one)
    assert handle.answers[0].tokens == greedy_answer(handle.prompt, 4)


@pytest.mark.parametrize("timeout", [math.nan, -math.inf])
def test_a_timeout_that_is_no_time(timeout: float):
    one = engine(Continuous(Limits(rows=4)))
    if math.isnan(timeout):
        with pytest.raises(UserError, match="deadline nan"):
            one.submit([5], timeout=timeout)
    else:
        handle = one.submit([5], timeout=timeout)
        run(one)
        assert handle.answers[0].finish and handle.answers[0].finish.reason == "timeout"
    nothing_left(one)


def test_a_full_queue_leaves_no_trace():
    one = engine(Continuous(Limits(rows=1, queue=QueueRule(size=2))))
    handles = [one.submit(numbered(i, 5), SamplingParams(max_tokens=3, ignore_eos=True)) for i in range(2)]
    for _ in range(3):
        with pytest.raises(QueueFull, match="2 requests of priority 1 wait already and the limit is 2"):
            one.submit(numbered(9, 5))
    handles.append(one.submit(numbered(2, 5), SamplingParams(max_tokens=3, ignore_eos=True), priority=2))
    run(one)
    assert [handle.answers[0].tokens for handle in handles] == [greedy_answer(numbered(i, 5), 3) for i in range(3)]
    nothing_left(one)


def test_prompts_of_any_sequence_are_kept_as_plain_numbers():
    """So that a snapshot of them is JSON."""
    for prompt in (np.array([3, 4, 5]), (3, 4, 5), range(3, 6), [np.int64(3), 4, 5]):
        found = intake().encode(prompt)  # type: ignore[arg-type]
        assert found == [3, 4, 5] and all(type(token) is int for token in found)


def test_a_text_is_the_beginning_of_its_answer_where_there_is_no_chat():
    assert intake().encode("A1") == [65, 49] and intake().eos == frozenset(EOS)
