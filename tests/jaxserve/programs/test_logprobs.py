"""Log-probabilities against float64, their order, and that plain data of them is valid JSON."""

from __future__ import annotations

import json
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.programs import logprobs as module
from jaxserve.programs.logprobs import Logprobs, PromptLogprobs, TokenLogprob, plain
from tests.jaxserve.programs.sampling_oracle import log_softmax

INF, NAN = float("inf"), float("nan")
compute = jax.jit(module.logprobs, static_argnames="top")


def found(logits: np.ndarray, tokens: np.ndarray, top: int) -> Logprobs:
    return compute(logits.astype(np.float32), tokens.astype(np.int32), top=top).on_host()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]), vocab=st.sampled_from([1, 20, 1000]))
def test_equal_float64(seed: int, scale: float, vocab: int):
    """Two rows of three places. Equal logits come in the order of their ids."""
    random, top = np.random.default_rng(seed), min(vocab, 7)
    logits = (np.round(scale * random.standard_normal((6, vocab)), 1) + 0.0).astype(
        np.float32
    )  # no -0.0, which comes after 0.0
    tokens = random.integers(0, vocab, (2, 3))
    out = found(logits, tokens, top)
    assert out.following.shape == (2, 3) and out.top.shape == out.top_tokens.shape == (2, 3, top)
    exact = np.array([log_softmax(row) for row in logits]).reshape(2, 3, vocab)
    order = np.argsort(-logits.reshape(2, 3, vocab), axis=2, kind="stable")[:, :, :top]
    np.testing.assert_array_equal(out.top_tokens, order)
    np.testing.assert_allclose(out.top, np.take_along_axis(exact, order, 2), rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(out.following, np.take_along_axis(exact, tokens[:, :, None], 2)[:, :, 0], rtol=1e-6, atol=2e-6)
    assert np.isfinite(out.top).all() and np.isfinite(out.following).all() and (out.top <= 1e-6).all()


def test_a_large_vocabulary():
    """The sum over 50,000 words in f32 against float64."""
    logits = (3 * np.random.default_rng(0).standard_normal((2, 50_000))).astype(np.float32)
    out, exact = found(logits, np.array([[7], [49_999]]), 20), [log_softmax(row) for row in logits]
    np.testing.assert_allclose(out.following, [[exact[0][7]], [exact[1][49_999]]], atol=5e-6)
    np.testing.assert_allclose(out.top[:, 0], [np.sort(row)[::-1][:20] for row in exact], atol=5e-6)


@pytest.mark.parametrize("broken", [[0.0, -INF, -INF], [NAN, 0.0, 0.0], [INF, 0.0, 0.0], [-INF] * 3])
def test_plain_data_is_valid_json(broken: list[float]):
    """A probability of 0 has the logarithm -inf, and broken logits have NaN; JSON has neither: they are null."""
    out = found(np.array([broken]), np.array([[1]]), 3)
    one = plain(out, 0, 0, 1, 3)
    text = json.dumps(one, allow_nan=False)
    assert one.logprob is None and json.loads(text)[1] is None
    assert all(value is None or math.isfinite(value) for _, value in one.top)


def test_a_row_may_want_fewer_than_the_program_gives():
    out = found(np.array([[0.0, 2.0, 1.0]]), np.array([[0]]), 3)
    total = math.log(1 + math.e + math.e**2)
    one = plain(out, 0, 0, 0, 1)
    assert one == (0, pytest.approx(-total), ((1, pytest.approx(2 - total)),))
    assert plain(out, 0, 0, 0, 0) == TokenLogprob(0, one.logprob, ())


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 10])
def test_a_prompt_is_gathered_chunk_by_chunk(chunk: int):
    """The distribution after each token is looked up for the next; the last chunk is padded and asks for nothing past the prompt."""
    prompt, logits = [3, 1, 4, 1, 5, 2, 6], 3 * np.random.default_rng(1).standard_normal((7, 8)).astype(np.float32)
    gathered = PromptLogprobs(prompt, 2)
    assert not gathered.complete
    for start in range(0, 7, chunk):
        count = min(chunk, 7 - start)
        following, part = np.zeros((2, chunk)), np.full((2, chunk, 8), NAN, np.float32)
        tokens = gathered.following(start, count)
        following[1, : len(tokens)], part[1, :count] = tokens, logits[start : start + count]
        gathered.add(found(part.reshape(-1, 8), following, 4), 1, start, count)
    assert gathered.complete and gathered.entries[0] is None
    for i in range(1, 7):
        entry, exact = gathered.entries[i], log_softmax(logits[i - 1])
        assert entry is not None and entry.token == prompt[i]
        assert entry.logprob == pytest.approx(exact[prompt[i]], abs=1e-5)
        assert [token for token, _ in entry.top] == np.argsort(-exact)[:2].tolist()
        assert [value for _, value in entry.top] == pytest.approx(sorted(exact)[:-3:-1], abs=1e-5)


def test_a_chunk_that_comes_again_changes_nothing_and_one_that_is_missing_shows():
    gathered, out = PromptLogprobs([3, 1, 4, 1], 0), found(np.zeros((4, 8)), np.array([[1, 4, 1, 0]]), 0)
    gathered.add(out, 0, 2, 2)
    assert not gathered.complete  # as after a prefix hit of two tokens
    gathered.add(out, 0, 0, 3)
    before = list(gathered.entries)
    gathered.add(out, 0, 0, 4)
    assert gathered.complete and gathered.entries == before
    assert PromptLogprobs([3], 0).complete
