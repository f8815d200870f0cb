"""A request's settings: what is refused, and how; what is kept; the seeds of several answers. Oracles: the documented limits."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from jaxserve.sampling_params import SamplingParams
from models.errors import UserError

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temperature": NAN}, r"temperature is nan; it must lie in \[0, 3.4e\+38\], 0 is greedy"),
        ({"temperature": -0.7}, r"temperature is -0.7; it must lie in \[0, 3.4e\+38\], 0 is greedy"),
        ({"temperature": INF}, "temperature is inf"),
        ({"temperature": "hot\n"}, r"temperature is 'hot\\n'; it must lie in"),
        ({"temperature": None}, "temperature is None"),
        ({"temperature": True}, "temperature is True"),
        ({"top_k": -2}, "top_k is -2; it must be at least 1, or 0 or -1 for no limit"),
        ({"top_k": 10**6000}, "top_k is a whole number of about 6001 digits; it must be at least 1"),
        ({"top_k": 5.0}, "top_k is 5.0"),
        ({"top_p": 0.0}, r"top_p is 0.0; it must lie in \(0, 1\]"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_p": NAN}, "top_p is nan"),
        ({"min_p": -0.1}, r"min_p is -0.1; it must lie in \[0, 1\]"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"min_p": NAN}, "min_p is nan"),
        ({"seed": -1}, r"seed is -1; it must lie in \[0, 2\*\*32\)"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"seed": 1.0}, "seed is 1.0"),
        ({"seed": True}, "seed is True"),
        ({"repetition_penalty": 0}, r"repetition_penalty is 0; it must lie in \[0.01, 100\], 1 for none"),
        ({"repetition_penalty": NAN}, "repetition_penalty is nan"),
        ({"presence_penalty": 2.1}, r"presence_penalty is 2.1; it must lie in \[-2, 2\], 0 for none"),
        ({"frequency_penalty": -INF}, r"frequency_penalty is -inf; it must lie in \[-2, 2\], 0 for none"),
        ({"logit_bias": {5: 101}}, r"the logit_bias of token 5 is 101; values lie in \[-100, 100\]"),
        ({"logit_bias": {5: NAN}}, "the logit_bias of token 5 is nan"),
        ({"logit_bias": {5: "much"}}, "the logit_bias of token 5 is 'much'"),
        ({"logit_bias": {-5: 1}}, "a token of logit_bias is -5; ids are whole numbers from 0"),
        ({"logit_bias": {"5": 1}}, "a token of logit_bias is '5'; ids are whole numbers from 0"),
        ({"logit_bias": np.array(1.5)}, "logit_bias is array\\(1.5\\); give a mapping from token ids to values, in a list"),
        ({"stop": np.array("a")}, "stop is array"),
        ({"logit_bias": 5}, "logit_bias is 5; give a mapping from token ids to values"),
        ({"logit_bias": [5]}, r"logit_bias is \[5\]; give a mapping from token ids to values"),
        ({"logit_bias": [(5, 1), (5, 2)]}, "logit_bias has several values for token 5; a token may have but one"),
        (
            {"logit_bias": dict.fromkeys(range(301), 1)},
            "logit_bias has more than 300 entries, which is the limit; leave some out",
        ),
        ({"stop": ""}, "stop has ''; each must be a string of 1 to 1000 characters"),
        ({"stop": ["a", ""]}, "stop has ''; each must be"),
        ({"stop": ["a", 5]}, "stop has 5; each must be a string"),
        ({"stop": "x" * 1001}, r"stop has 'x{17}\.\.\.x{18}'; each must be a string of 1 to 1000 characters"),
        ({"stop": 5}, "stop is 5; give a string or several, in a list"),
        ({"stop": ["a"] * 65}, "stop has more than 64 entries, which is the limit; leave some out"),
        ({"stop_ids": [-1]}, "a token of stop_ids is -1; ids are whole numbers from 0"),
        ({"stop_ids": ["a"]}, "a token of stop_ids is 'a'"),
        ({"stop_ids": 7}, "stop_ids is 7; give token ids, in a list"),
        ({"stop_ids": "7"}, "stop_ids is '7'; give token ids, in a list"),
        ({"stop_ids": range(65)}, "stop_ids has more than 64 entries, which is the limit"),
        ({"ignore_eos": "yes"}, "ignore_eos is 'yes'; give True or False"),
        ({"include_stop": 1}, "include_stop is 1; give True or False"),
        ({"min_tokens": -1}, "min_tokens is -1; it must be at least 0"),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens is 6 and max_tokens 5; lower the one or raise the other"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be at least 1, or None for all there is room for"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5"),
        ({"n": 0}, "n is 0; it must be a whole number from 1 to 128"),
        ({"n": 129}, "n is 129"),
        ({"logprobs": 21}, "logprobs is 21; it must be a whole number from 0 to 20, or None"),
        ({"logprobs": True}, "logprobs is True"),
        ({"prompt_logprobs": -1}, "prompt_logprobs is -1; it must be a whole number from 0 to 20, or None"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_wrong_settings_are_refused(params: dict[str, Any], message: str):
    with pytest.raises(UserError, match=f"^{message}") as caught:
        SamplingParams(**params)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 140


def test_the_edges_of_each_range_are_accepted():
    SamplingParams(3.4e38, 0, 1e-30, 1.0, 2**32 - 1, 0.01, -2.0, 2, max_tokens=1, min_tokens=1, n=128, logprobs=0)
    SamplingParams(0, 2**40, 1, 0, 0, 100, 2, -2, {0: -100, 7: 100}, ["x" * 1000] * 64, range(64), True, True, logprobs=20)


def test_what_is_kept_can_be_hashed_pickled_and_made_again():
    bias: dict[Any, Any] = {9: np.float32(1.5), np.int64(2): -100}
    given = SamplingParams(stop="end", stop_ids=[3, 4], logit_bias=bias)
    assert (given.stop, given.stop_ids, given.logit_bias) == (("end",), (3, 4), ((2, -100.0), (9, 1.5)))
    again = SamplingParams(stop=("end",), stop_ids=(3, 4), logit_bias=given.biases)
    assert given == again and hash(given) == hash(again) and pickle.loads(pickle.dumps(given)) == given
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b") and SamplingParams(logit_bias={}).biases == ()


def test_which_settings_look_at_tokens():
    assert not SamplingParams(1.0, 5, 0.5, 0.1, 3, logit_bias={1: 2}, min_tokens=3).penalised
    assert SamplingParams(repetition_penalty=1.1).penalised
    assert SamplingParams(presence_penalty=-0.1).penalised and SamplingParams(frequency_penalty=0.1).penalised


def test_every_answer_of_a_request_has_a_seed_of_its_own():
    """2 * 0x9E3779B9 = 5308871538, worked out by hand, past 2**32."""
    request = SamplingParams(0.8, top_k=5, seed=7, n=3, stop="x")
    first, second, third = (request.of_sample(i) for i in range(3))
    assert first == SamplingParams(0.8, top_k=5, seed=7, stop="x")  # what n = 1 gives
    assert (second.seed, third.seed) == (7 + 2654435769, (7 + 5308871538) - 2**32)
    assert second.n == 1 and second.top_k == 5
    seeds = {SamplingParams(seed=2**32 - 1, n=128).of_sample(i).seed for i in range(128)}
    assert len(seeds) == 128 and all(seed is not None and 0 <= seed < 2**32 for seed in seeds)
    assert SamplingParams(0.8, n=2).of_sample(1) == SamplingParams(0.8)  # no seed, none of its own


def test_a_seed_is_asked_for_only_where_one_is_needed():
    asked = iter(range(5, 9))
    drawn = SamplingParams(0.8).with_seed(lambda: next(asked))
    assert drawn == SamplingParams(0.8, seed=5) and drawn.with_seed(lambda: next(asked)) is drawn
    greedy = SamplingParams(n=2)
    assert greedy.greedy and greedy.with_seed(lambda: next(asked)) is greedy and next(asked) == 6


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {1, 106}),
        ({"ignore_eos": True}, set()),
        ({"stop_ids": [5]}, {1, 106, 5}),
        ({"stop_ids": [5, 106], "ignore_eos": True}, {5, 106}),
    ],
)
def test_tokens_that_end_an_answer(params: dict[str, Any], expected: set[int]):
    """End tokens [1, 106], as Gemma's: both end, unless they are ignored; a stop id ends always."""
    assert SamplingParams(**params).stop_set([1, 106]) == expected
