"""Public reports that this engine must not repeat, of what is drawn: one test a kind, with the smallest input that shows it.

Oracles: the dense float64 pass (`proofs.proved`, `proofs.greedy_answer`), and the same request alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from jaxserve.programs.buckets import Buckets
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from tests.jaxserve.engines import ALL_KIT, PAGE, ROWS, WIDTH, Kit, engine, numbered, run
from tests.jaxserve.proofs import FIVE, answers, greedy_answer, proved, served

WIDE_KIT = Kit(Buckets((2, 8, 64), (WIDTH,), (8, 8), PAGE), units=64 * 6)


def test_padding_ignores_page_size():
    """Two prompts of 3 and 5 tokens, pages of 4: log-probabilities are those of each alone, to the last digit that f32 has."""
    params = dataclasses.replace(FIVE, logprobs=2, prompt_logprobs=2)
    prompts = [numbered(0, 3), numbered(0, 5)]
    together = served(prompts, params, engine(Continuous(ROWS), ALL_KIT))
    for prompt, one in zip(prompts, together, strict=True):
        (alone,) = served([prompt], params, engine(Continuous(ROWS), ALL_KIT))
        assert one.answers[0].tokens == alone.answers[0].tokens
        for a, b in zip(one.logprobs[0], alone.logprobs[0], strict=True):
            assert a.logprob == pytest.approx(b.logprob, abs=1e-5)


def test_wrong_decode_positions():
    """Log-probabilities of the second token and all later ones are those of a full pass; `proved` compares each."""
    (handle,) = served(
        [numbered(4, 6)], SamplingParams(max_tokens=20, ignore_eos=True, logprobs=2), engine(Continuous(ROWS), ALL_KIT)
    )
    assert len(handle.logprobs[0]) == 20


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_neighbours_change_the_answer(temperature: float):
    """Alone, with one other, with three others, and while others come and go, so that the program changes under it."""
    me = SamplingParams(temperature, seed=3, max_tokens=12, ignore_eos=True)
    one = engine(Continuous(ROWS))
    alone = answers(served([numbered(0, 9)], me))
    for others in (1, 3):
        assert answers(served([numbered(i, 9) for i in range(1 + others)], me))[:1] == alone
    handle = one.submit(numbered(0, 9), me)
    for i in range(6):
        one.submit(numbered(7 + i, 5), SamplingParams(max_tokens=2 + i % 3, ignore_eos=True))
        if i > 1:
            one.step()
    run(one)
    assert answers([handle]) == alone
    used = {name for record in one.records for name in record.programs}
    assert {"decode 1", "decode 2", "decode 4"} <= used


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_neighbours_change_the_answer_in_64(temperature: float):
    me = SamplingParams(temperature, seed=3, max_tokens=8, ignore_eos=True)
    prompts = [numbered(i, 1 + 7 * i % 13) for i in range(64)]
    found = {}
    for count in (1, 2, 7, 64):
        found[count] = answers(served(prompts[:count], me, engine(Continuous(Limits(rows=64)), WIDE_KIT)))
    assert found[1] == found[64][:1] and found[2] == found[64][:2] and found[7] == found[64][:7]


def test_per_row_sampling_lost():
    """The same prompt with T=0 and T=1.5, top_k off and 5, in one batch: each row follows its own, `proved` says."""
    each = [
        SamplingParams(max_tokens=9, ignore_eos=True),
        SamplingParams(1.5, max_tokens=9, ignore_eos=True, seed=1),
        SamplingParams(1.5, top_k=5, max_tokens=9, ignore_eos=True, seed=1),
        SamplingParams(1.5, top_k=1, max_tokens=9, ignore_eos=True, seed=1),
    ]
    one = engine(Continuous(ROWS))
    handles = [one.submit(numbered(0, 6), params) for params in each]
    run(one)
    for handle in handles:
        proved(handle)
    greedy, free, five, first = answers(handles)
    assert greedy == first == greedy_answer(numbered(0, 6), 9)
    assert free != greedy and five not in (free, greedy)


def test_penalties_count_padding():
    """One row with penalties in a program of four; beside three without, and alone."""
    mine = SamplingParams(max_tokens=14, frequency_penalty=1.5, repetition_penalty=1.2, ignore_eos=True)
    one = engine(Continuous(ROWS), ALL_KIT)
    alone = answers(served([numbered(0, 6)], mine, one))
    handle = one.submit(numbered(0, 6), mine)
    others = [one.submit(numbered(1 + i, 9), FIVE) for i in range(3)]
    run(one)
    assert answers([handle]) == alone
    assert answers(others) == [greedy_answer(numbered(1 + i, 9), 5) for i in range(3)]
    assert alone != [greedy_answer(numbered(0, 6), 14)], "the penalties are to matter"


@pytest.mark.parametrize("token", [1, 6])
def test_eos_list_ignored(token: int):
    """The end tokens are 1 and 6. A bias of 100 leaves nothing else to draw."""
    only: dict[str, Any] = {"max_tokens": 4, "logit_bias": {token: 100.0}}
    one = engine(Continuous(ROWS), ALL_KIT)
    (handle,) = served([numbered(0, 5)], SamplingParams(**only), one)
    assert handle.answers[0].tokens == [token] and handle.answers[0].finish == ("stop", token)
    (handle,) = served([numbered(0, 5)], SamplingParams(**only, ignore_eos=True), one)
    assert handle.answers[0].tokens == [token] * 4 and handle.answers[0].finish == ("length", None)
    (handle,) = served([numbered(0, 5)], SamplingParams(**only, ignore_eos=True, stop_ids=[token]), one)
    assert handle.answers[0].tokens == [token]
    (handle,) = served([numbered(0, 5)], SamplingParams(max_tokens=4, logit_bias={token: 90.0}, min_tokens=3), one)
    assert token not in handle.answers[0].tokens[:3] and handle.answers[0].tokens[3] == token
