"""What a program can do for its requests, and what it refuses. Oracle: limits and messages by hand.

That a step does it right is in `test_featured_step.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from jaxserve.programs.features import PLAIN, Features
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from tests.jaxserve.featured import ALL, EOS


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"presence_penalty": 1}, None),
        ({"logit_bias": {5: 1, 6: 1}, "stop_ids": [4], "min_tokens": 2}, "5 biased or held back tokens; the limit is 4"),
        ({"logit_bias": {5: 1, 6: 1}, "stop_ids": [4], "min_tokens": 2, "ignore_eos": True}, None),
        ({"logprobs": 2}, None),
        ({"logprobs": 3}, "3 logprobs; the limit is 2"),
        ({"prompt_logprobs": 0}, "0 prompt_logprobs; the limit is None"),
        ({"logit_bias": {95: 1}, "stop_ids": [95]}, None),
        ({"logit_bias": {96: 1}}, "logit_bias names token 96; the vocabulary ends at 95"),
        ({"stop_ids": [3, 96]}, "stop_ids names token 96; the vocabulary ends at 95"),
        ({"logit_bias": {1: 100}, "min_tokens": 1}, "logit_bias and min_tokens together leave no token to draw"),
        ({"logit_bias": {1: 100, 5: 100}, "min_tokens": 1}, None),
        ({"logit_bias": {1: 100}}, None),
    ],
    ids=str,
)
def test_what_a_program_cannot_do_is_refused(params: dict[str, Any], message: str | None):
    features, asked = Features(history=64, biases=4, logprobs=2), SamplingParams(**params)
    if message is None:
        features.check(asked, asked.stop_set(EOS), 96)
    else:
        with pytest.raises(UserError, match=message) as caught:
            features.check(asked, asked.stop_set(EOS), 96)
        assert "\n" not in str(caught.value)


def test_which_requests_a_plain_program_serves():
    assert PLAIN.missing(SamplingParams(1.5, 5, 0.5, 0.1, 3, stop="x", stop_ids=[4], max_tokens=9), [4]) is None
    assert PLAIN.missing(SamplingParams(frequency_penalty=1), []) == "penalties"
    assert PLAIN.missing(SamplingParams(min_tokens=1), []) is None  # nothing to hold back
    assert ALL.missing(SamplingParams(min_tokens=1, logprobs=3), [4]) is None


def test_nothing_left_to_draw_in_a_small_vocabulary():
    barred = SamplingParams(logit_bias=dict.fromkeys(range(3), -100), min_tokens=1, stop_ids=[3])
    with pytest.raises(UserError, match="leave no token to draw"):
        Features(biases=9).check(barred, barred.stop_set([]), 4)
    Features(biases=9).check(barred, barred.stop_set([]), 5)


@pytest.mark.parametrize(("name", "value"), [("history", -1), ("biases", -1), ("logprobs", 21), ("prompt_logprobs", -1)])
def test_features_that_cannot_be(name: str, value: int):
    with pytest.raises(UserError, match=f"features: {name} is {value}; it must"):
        Features(**{name: value})
