"""Biases against their definition in float64, row by row: values, bans, what alone is left, and what min_tokens holds back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.programs import logit_bias as biases
from jaxserve.programs.logit_bias import LogitBias
from jaxserve.programs.sampling import RowSampling, sample
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from tests.jaxserve.programs.sampling_oracle import adjusted

VOCAB, INF = 13, float("inf")
biased = jax.jit(biases.biased)
draw = jax.jit(lambda logits, given, rows, at: sample(biases.biased(logits, given, at), rows, at))


def packed(rows: list[SamplingParams], room: int, prompt: int = 5, stops: tuple[int, ...] = ()) -> LogitBias:
    found = LogitBias.blank(len(rows), room)
    for i, params in enumerate(rows):
        found.put(i, params, prompt, params.stop_set(stops))
    return found


VALUES = st.sampled_from([-100.0, 100.0, 0.0, 1.5, -3.25, 99.0])
SETTINGS = st.builds(
    SamplingParams,
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), VALUES, max_size=5),
    stop_ids=st.lists(st.integers(0, VOCAB - 1), max_size=2),
    ignore_eos=st.booleans(),
    min_tokens=st.integers(0, 4),
)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(SETTINGS, st.integers(0, 5)), min_size=3, max_size=3),
    room=st.sampled_from([9, 16]),
    seed=st.integers(0, 1000),
)
def test_biased_logits_equal_the_definition(rows: list[tuple[SamplingParams, int]], room: int, seed: int):
    """Each row at a place of its own: `drawn` tokens of its answer are there already. Rows without entries keep their bits."""
    logits = (5 * np.random.default_rng(seed).standard_normal((3, VOCAB))).astype(np.float32)
    found = packed([params for params, _ in rows], room, 5, (2, 7))
    out = np.asarray(biased(logits, found, np.array([5 + drawn for _, drawn in rows], np.int32)))
    for i, (params, drawn) in enumerate(rows):
        expected = adjusted(logits[i], params, [0] * 5, [1] * drawn, params.stop_set((2, 7)))
        np.testing.assert_allclose(out[i], expected, rtol=1e-6, atol=1e-5)
        if not params.biases and not params.min_tokens:
            np.testing.assert_array_equal(out[i], logits[i])


def test_a_row_with_entries_does_not_touch_its_neighbours():
    """The largest id and the padding's must not wrap around or run over into the next row."""
    logits = np.zeros((3, VOCAB), np.float32)
    found = packed([SamplingParams(), SamplingParams(logit_bias={0: 1, VOCAB - 1: -100}), SamplingParams()], 4)
    expected = np.zeros((3, VOCAB))
    expected[1, 0], expected[1, VOCAB - 1] = 1, -INF
    np.testing.assert_array_equal(np.asarray(biased(logits, found, np.zeros(3, np.int32))), expected)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1e30])
def test_forbidden_and_allowed_tokens_hold_at_any_temperature(temperature: float):
    """Uniform at 1e30, where a mere -100 would mean nothing; with and without filters, on logits that favour what is barred."""
    logits = np.tile(np.where(np.arange(VOCAB) < 6, 50.0, -50.0).astype(np.float32), (8, 1))
    forbid, only = dict.fromkeys(range(6), -100.0), dict.fromkeys((9, 11), 100.0)
    filters: tuple[dict[str, Any], ...] = ({}, {"top_k": 7}, {"top_p": 0.9}, {"min_p": 0.2})
    rows = [SamplingParams(temperature, seed=i, logit_bias=bias, **f) for i, f in enumerate(filters) for bias in (forbid, only)]
    for at in range(40):
        tokens = np.asarray(draw(logits, packed(rows, 8), RowSampling.of(rows), np.full(8, at, np.int32)))
        assert (tokens[::2] >= 6).all() and np.isin(tokens[1::2], (9, 11)).all()


def test_end_tokens_wait_for_min_tokens():
    """[1, 6] are the model's, 4 the request's; they are the likeliest. With a prompt of 5 and min_tokens 3, positions 5, 6, 7 wait."""
    logits = np.zeros((1, VOCAB), np.float32)
    logits[0, [1, 4, 6, 3]] = (9, 8, 7, 2)
    for params, early, late in (
        (SamplingParams(min_tokens=3, stop_ids=[4]), 3, 1),
        (SamplingParams(min_tokens=3, stop_ids=[4], ignore_eos=True), 1, 1),  # they end nothing, so they may come
        (SamplingParams(stop_ids=[4]), 1, 1),
    ):
        found = packed([params], 4, 5, (1, 6))
        tokens = [int(draw(logits, found, RowSampling.of([params]), np.array([at], np.int32))[0]) for at in range(5, 10)]
        assert tokens == [early] * 3 + [late] * 2


def test_more_entries_than_there_is_room_for_are_refused():
    found = LogitBias.blank(1, 3)
    found.put(0, SamplingParams(logit_bias={1: 1, 2: 1}, min_tokens=1), 5, [7])
    with pytest.raises(UserError, match="a row has 4 biased or held back tokens and the program takes 3; compile it with more"):
        found.put(0, SamplingParams(logit_bias={1: 1, 2: 1}, min_tokens=1), 5, [7, 8])


def test_a_limit_past_what_positions_can_be_is_no_limit():
    assert biases.entries(SamplingParams(min_tokens=2**31 - 1), 5, [7]) == [(7, -INF, 2**31 - 1)]
