"""What became of a request, as plain values. Oracle: worked out by hand from made-up tokens and times."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from jaxserve.engine.request_handle import RequestHandle
from jaxserve.engine.request_output import CompletionOutput, RequestOutput
from jaxserve.engine.sequence import Finish
from jaxserve.programs.logprobs import TokenLogprob
from jaxserve.sampling_params import SamplingParams
from jaxserve.text.token_bytes import TokenBytes
from models.text.tokenizer import byte_tokenizer

PIECES = TokenBytes(byte_tokenizer(512))


def handle() -> RequestHandle:
    """Two answers of a request that came at 10 s: "ab" and an end token; "c", given up."""
    params = SamplingParams(n=2, temperature=1.0, seed=7, logprobs=1, prompt_logprobs=0)
    one = RequestHandle(0, [104, 105], params, PIECES, (256,), 100, continued=False, arrival=10.0, priority=1, timeout=9.0)
    for token in (97, 98, 256):
        one.answers[0].push(token)
    one.answers[1].push(99)
    one.answers[1].abort()
    one.token_times[:] = [[10.5, 11.0, 12.0], [10.25]]
    one.logprobs[:] = [[TokenLogprob(97, -1.0, ((97, -1.0),)), TokenLogprob(98, None, ()), TokenLogprob(256, -2.0, ())], []]
    assert one.scores is not None
    one.scores.entries[:] = [None, TokenLogprob(105, -3.0, ())]
    return one


def test_values():
    found = RequestOutput.of("hi", handle())
    first, second = found.answers
    assert first == CompletionOutput("ab", (97, 98, 256), Finish("stop", 256), tuple(handle().logprobs[0]), (0.5, 1.0, 2.0))
    assert second == CompletionOutput("c", (99,), Finish("abort"), (), (0.25,))
    assert (found.request_id, found.params, found.seed) == (0, handle().params, 7)
    assert (found.text, found.ttft, found.seconds) == ("ab", 0.25, 2.0)
    assert found.prompt_tokens == (104, 105) and found.prompt_logprobs == (None, TokenLogprob(105, -3.0, ()))


def test_the_names_of_vllm():
    """-1 - 2 = -3; the end token of the middle has none, which is a probability of 0."""
    found = RequestOutput.of([104, 105], handle())
    assert found.outputs is found.answers and found.prompt_token_ids == [104, 105] and found.finished
    first, second = found.outputs
    assert (first.token_ids, first.finish_reason, second.finish_reason) == ([97, 98, 256], "stop", "abort")
    assert first.cumulative_logprob == -math.inf and second.cumulative_logprob is None
    whole = first._replace(logprobs=(TokenLogprob(97, -1.0, ()), TokenLogprob(98, -2.0, ())))
    assert whole.cumulative_logprob == -3.0


@pytest.mark.parametrize(
    ("given", "kept", "written"),
    [
        ({"prompt": "hi"}, "hi", "hi"),
        ({"prompt_token_ids": [104, 105]}, [104, 105], [104, 105]),
        (range(104, 106), range(104, 106), [104, 105]),
        ([{"role": "user", "content": "hi"}], [{"role": "user", "content": "hi"}], [{"role": "user", "content": "hi"}]),
    ],
)
def test_prompts_stay_as_they_were_given_and_are_plain_json(given: Any, kept: Any, written: Any):
    found = RequestOutput.of(given, handle())
    assert found.prompt == kept and json.loads(json.dumps(found.to_json()))["prompt"] == written


def test_they_stay_when_the_request_goes_on():
    one = handle()
    found = RequestOutput.of("hi", one)
    one.answers[0].tokens.append(7)
    one.token_times[0].append(99.0)
    assert found.answers[0].tokens == (97, 98, 256) and found.seconds == 2.0


def test_json():
    assert json.loads(json.dumps(RequestOutput.of([104, 105], handle()).to_json(), allow_nan=False)) == {
        "prompt": [104, 105],
        "prompt_tokens": [104, 105],
        "seed": 7,
        "answers": [
            {
                "text": "ab",
                "tokens": [97, 98, 256],
                "finish_reason": "stop",
                "stopped_at": 256,
                "logprobs": [
                    {"token": 97, "logprob": -1.0, "top": [[97, -1.0]]},
                    {"token": 98, "logprob": None, "top": []},
                    {"token": 256, "logprob": -2.0, "top": []},
                ],
            },
            {"text": "c", "tokens": [99], "finish_reason": "abort", "stopped_at": None},
        ],
        "measured_ttft_seconds": 0.25,
        "measured_seconds": 2.0,
        "prompt_logprobs": [None, {"token": 105, "logprob": -3.0, "top": []}],
    }


def test_a_request_that_had_no_token():
    one = RequestHandle(0, [1], SamplingParams(), PIECES, (), 10, continued=False, arrival=0.0, priority=1, timeout=1.0)
    one.answers[0].abort("timeout")
    found = RequestOutput.of("x", one)
    assert (found.ttft, found.seconds, found.text) == (None, None, "")
    assert found.to_json()["answers"][0]["finish_reason"] == "timeout"
