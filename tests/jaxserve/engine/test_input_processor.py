"""What may be asked. Oracles: the limits by hand, one below, at, and above; refusals leave the engine as it was."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from jaxserve.engine.input_processor import InputProcessor, Prompt, read
from jaxserve.programs.features import PLAIN, Features
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.request import QueueFull
from models.errors import UserError
from models.text.tokenizer import Tokenizer, byte_tokenizer
from tests.jaxserve.engines import CONTEXT, EOS, engine, model, nothing_left, numbered, run
from tests.jaxserve.proofs import greedy_answer


def intake(features: Features = PLAIN, context: int = CONTEXT) -> InputProcessor:
    return InputProcessor(model().tokenizer, model().config.vocab_size, features, context)


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
    ([1.5], SamplingParams(), r"the prompt is \[1.5\]; give a text, token ids as whole numbers, or the messages of a chat"),
    *(
        (wrong, SamplingParams(), "the prompt is .*; give a text, token ids as whole numbers, or the messages of a chat")
        for wrong in (
            *(
                ["a"],
                [[1, 2]],
                [None],
                7,
                None,
                b"ab",
                bytearray(b"ab"),
                memoryview(b"ab"),
                {1, 2},
                frozenset({1}),
                {1: 2}.keys(),
            ),
            *([True], [np.True_], [1, False], (token for token in [1, 2]), map(int, "12"), iter([1]), [1, "a"], object(), 1j),
            *(np.array([1.0]), np.array([True]), np.array([[1, 2]]), np.array(1), np.array(["a"]), [np.float32(1)], [b"a"]),
        )
    ),
    ([10**5000], SamplingParams(), "the prompt has token a whole number of about 5001 digits; ids lie in 0 to 95"),
    (np.array([-1]), SamplingParams(), "the prompt has token -1; ids lie in 0 to 95"),
    (np.array([], int), SamplingParams(), "the prompt is empty"),
    ({}, SamplingParams(), "it has neither"),
    ({"prompt": None}, SamplingParams(), "it has neither"),
    ({"prompt": [1, 2]}, SamplingParams(), r"prompt is \[1, 2\]; give a text"),
    ({"prompt_token_ids": "ab"}, SamplingParams(), "prompt_token_ids is 'ab'; give token ids as whole numbers"),
    ({"prompt_token_ids": {"prompt": "a"}}, SamplingParams(), "prompt_token_ids is .*; give token ids as whole numbers"),
    ({"prompt_token_ids": [True]}, SamplingParams(), r"the prompt is \[True\]; give a text, token ids"),
    ({"prompt": "a", "multi_modal_data": 1}, SamplingParams(), "'multi_modal_data' means nothing here"),
    ({"role": "user", "content": "a"}, SamplingParams(), "a message or messages; give llm.chat a list of messages"),
    ([{"role": "user", "content": "a"}], SamplingParams(), "the model has no chat template"),
    ([{"role": "user"}], SamplingParams(), "message 1 has the content None; give a text"),
    ([{"content": "a"}], SamplingParams(), 'message 1 is .*; give {"role": "user", "content": text}'),
    ([{"role": "user", "content": "a"}, "b"], SamplingParams(), "message 2 is 'b'; give"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], SamplingParams(), "its parts must be"),
    ("half \ud83d", SamplingParams(), "the text holds half of a character"),
    ([1], SamplingParams(frequency_penalty=1), "asks for penalties"),
    ([1], SamplingParams(logprobs=1), "1 logprobs; the limit is None"),
    ([1], SamplingParams(prompt_logprobs=0), "0 prompt_logprobs"),
    ([1], SamplingParams(logit_bias={5: 1.0}), "1 biased or held back tokens; the limit is 0"),
    ([1], SamplingParams(stop_ids=[96]), "stop_ids names token 96; the vocabulary ends at 95"),
    ([1], {"max_tokens": 4}, r"params is .*max_tokens.*; give SamplingParams, such as SamplingParams\(max_tokens=16\)"),
    ([1], SamplingParams(n=5), "asks for 5 samples, but at most 4 rows"),
]


@pytest.mark.parametrize(("prompt", "params", "message"), BAD, ids=map(str, range(len(BAD))))
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


WHEN = [
    ({"priority": "high"}, "the priority is 'high'; it must be a whole number; lower ones go first"),
    *(({"priority": wrong}, "the priority is ") for wrong in (math.nan, math.inf, 1.0, True, None, [1], 1j, 2**31, 10**5000)),
    *(
        ({"timeout": wrong}, "the timeout is .*; it must be s of waiting")
        for wrong in (math.nan, -math.inf, "1", None, True, 10**400)
    ),
    *(({"raw": wrong}, "raw is .*; give True or False") for wrong in (1, "yes", None)),
]


@pytest.mark.parametrize(("when", "message"), WHEN, ids=map(str, range(len(WHEN))))
def test_a_wrong_priority_or_timeout_is_refused_before_it_reaches_the_queue(when: dict[str, Any], message: str):
    """A priority that can't be compared with others would end every later step in an error, for all."""
    one = engine(Continuous(Limits(rows=4)))
    with pytest.raises(UserError, match=message) as error:
        one.submit([5], **when)
    assert "\n" not in str(error.value)
    nothing_left(one)
    handle = one.submit(numbered(3, 5), SamplingParams(max_tokens=4, ignore_eos=True), priority=2)
    run(one)
    assert handle.answers[0].tokens == greedy_answer(handle.prompt, 4)


def test_a_time_that_is_over_is_no_error():
    one = engine(Continuous(Limits(rows=4)))
    handle = one.submit([5], timeout=-1.0)
    run(one)
    assert handle.answers[0].finish and handle.answers[0].finish.reason == "timeout"
    nothing_left(one)


def test_what_came_from_numpy_is_kept_as_plain_values():
    """So that a snapshot is JSON, and reads back as the same."""
    given: dict[str, Any] = dict(
        temperature=np.float32(0.5), top_k=np.int64(5), top_p=np.array(0.5), seed=np.uint32(7), stop_ids=np.array([9]),
        logit_bias={}, ignore_eos=np.True_, max_tokens=np.int8(4), presence_penalty=np.float16(0.0),
    )  # fmt: skip
    params = SamplingParams(**given)
    assert params == SamplingParams(0.5, 5, 0.5, seed=7, stop_ids=[9], ignore_eos=True, max_tokens=4)
    rows: Any = np.int64(4)
    when: dict[str, Any] = {"priority": np.int16(2), "timeout": np.float32(60)}
    one = engine(Continuous(Limits(rows=rows)))
    one.submit(np.array([3, 4, 5]), params, **when)
    snapshot = one.snapshot()
    assert json.loads(json.dumps(snapshot)) == json.loads(json.dumps(snapshot, default=repr))
    assert (snapshot["requests"][0]["prompt"], snapshot["requests"][0]["priority"]) == ([3, 4, 5], 2)
    run(one)


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
        found = intake().read(prompt).tokens  # type: ignore[arg-type]
        assert found == (3, 4, 5) and all(type(token) is int for token in found)


def test_a_text_is_the_beginning_of_its_answer_where_there_is_no_chat():
    assert intake().read("A1") == Prompt((65, 49), continued=True) and intake().eos == frozenset(EOS)


def test_a_prompt_as_vllm_writes_it():
    """Where it has both, the ids are what the model reads."""
    for given in ({"prompt": "A1"}, {"prompt_token_ids": [65, 49]}, {"prompt": "B", "prompt_token_ids": (65, 49)}):
        assert intake().read(given).tokens == (65, 49)


TEMPLATE = "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}{% if add_generation_prompt %}a{% endif %}"


@pytest.mark.parametrize(
    ("given", "raw", "text", "continued"),
    [
        ("A1", False, "uA1;a", False),
        ("A1", True, "A1", True),
        ({"prompt": "A1"}, True, "A1", True),
        ([{"role": "system", "content": "B"}, {"role": "user", "content": "A"}], False, "sB;uA;a", False),
        (
            [{"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}],
            False,
            "uA\nB;a",
            False,
        ),
        ((65, 49), False, "A1", False),
        ((65, 49), True, "A1", True),
    ],
)
def test_where_there_is_a_chat_a_text_is_a_turn_unless_it_is_raw(given: Any, raw: bool, text: str, continued: bool):
    """Oracle: the template by hand; one token a byte."""
    tokenizer = Tokenizer(byte_tokenizer(512).backend, bos_token=None, eos_tokens=EOS, origin="test", chat_template=TEMPLATE)
    assert read(given, tokenizer, 512, raw=raw) == Prompt(tuple(text.encode()), continued)
