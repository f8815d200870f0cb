"""Sampling: which tokens the filters keep, against a slow sort in numpy; what is drawn, against the exact distribution."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.programs import sampling
from jaxserve.programs.sampling import RowSampling, greedy
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from tests.jaxserve.programs.sampling_oracle import kept as oracle_kept

NAN, INF = float("nan"), float("inf")
sample = jax.jit(sampling.sample)
kept = jax.jit(sampling._kept)


def draw(logits: Any, rows: list[SamplingParams], positions: Any) -> list[int]:
    return np.asarray(
        sample(jnp.asarray(logits, jnp.float32), RowSampling.of(rows), jnp.asarray(positions, jnp.int32))
    ).tolist()


def random_logits(rows: int, vocab: int, seed: int = 0) -> np.ndarray:
    return (3 * np.random.default_rng(seed).standard_normal((rows, vocab))).astype(np.float32)


@pytest.mark.parametrize("vocab", [1, 7, 255, 256, 257, 1000])
def test_greedy_is_argmax(vocab: int):
    logits = random_logits(20, vocab)
    logits[1] = 0.0  # all tie: the first
    logits[2] = np.round(logits[2])  # some tie
    logits[3] = -INF
    logits[4, vocab // 2 :] = INF
    logits[5] = -1e38
    logits[6] = np.where(np.arange(vocab) % 300 == vocab - 1, 4.0, -4.0)
    found = np.asarray(jax.jit(greedy)(logits))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, logits.argmax(axis=1))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_nan_gives_a_token_and_leaves_other_rows_alone(temperature: float):
    """A broken row must not yield an index outside the vocabulary, nor change its neighbours."""
    logits = random_logits(5, 300)
    rows = [SamplingParams(temperature, seed=i) for i in range(5)]
    clean = draw(logits, rows, range(5))
    logits[1], logits[3, 299] = NAN, NAN
    broken = draw(logits, rows, range(5))
    assert all(0 <= token < 300 for token in broken)
    assert [broken[i] for i in (0, 2, 4)] == [clean[i] for i in (0, 2, 4)]


SETTINGS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.1, 0.7, 1.0, 1.5, 10.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 11, 12, 1000]),
    top_p=st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.999, 1.0]) | st.floats(0.01, 1.0),
    min_p=st.sampled_from([0.0, 1e-4, 0.1, 0.5, 1.0]) | st.floats(0.0, 1.0),
)
# Ties are common, and what is no tie is none in f32 either.
VALUES = st.integers(-8, 8).map(lambda i: i / 2) | st.integers(-160, 160).map(lambda i: i / 8)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.tuples(SETTINGS, st.lists(VALUES, min_size=12, max_size=12)), min_size=3, max_size=3))
def test_kept_tokens_equal_those_of_a_sort(rows: list[tuple[SamplingParams, list[float]]]):
    """Three rows at once with settings of their own. A token within 1e-5 of a limit may fall on either side of it."""
    logits = np.array([values for _, values in rows], np.float32)
    packed = RowSampling.of([p for p, _ in rows])
    found = np.asarray(kept(jnp.asarray(logits / packed.temperature[:, None]), packed))
    for row, (p, _) in enumerate(rows):
        at_least, at_most = oracle_kept(logits[row], p, -1e-5), oracle_kept(logits[row], p, 1e-5)
        assert (at_least <= found[row]).all() and (found[row] <= at_most).all()
        assert found[row][logits[row].argmax()]


def test_kept_tokens_of_a_large_vocabulary():
    """Sums over 50,000 tokens in f32 against float64; all but a handful of tokens lie clear of the limits."""
    rows = [
        SamplingParams(1.0, *f) for f in ((40, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.02), (1000, 0.95, 0.001), (0, 0.999, 0.0))
    ]
    logits = random_logits(len(rows), 50_000)
    found = np.asarray(kept(jnp.asarray(logits), RowSampling.of(rows)))
    for row, p in enumerate(rows):
        low, high = by_sorting_fast(logits[row], p, -2e-6), by_sorting_fast(logits[row], p, 2e-6)
        assert low <= found[row].sum() <= high and high - low <= 0.001 * high + 1, (p, low, found[row].sum(), high)
        assert logits[row][found[row]].min() > logits[row][~found[row]].max()


def by_sorting_fast(logits: np.ndarray, p: SamplingParams, slack: float) -> int:
    """How many tokens are kept, for logits without ties."""
    odds = np.exp(np.sort(logits.astype(np.float64))[::-1])
    odds = odds[: p.top_k or len(odds)] / odds[0]
    before = np.cumsum(odds) - odds
    return int(((before < p.top_p * odds.sum() * (1 + slack)) & (odds >= p.min_p * (1 - slack))).sum())


def test_rows_follow_their_own_settings():
    """The same logits in each row; a row of T = 0 beside T = 1.5, no top_k beside 5; every row's draws stay in its own set."""
    rows = [SamplingParams(0.0, top_k=5), SamplingParams(1.5, seed=1), SamplingParams(1.5, top_k=5, seed=1)]
    rows += [SamplingParams(1.5, top_p=0.5, seed=1), SamplingParams(1.5, min_p=0.5, seed=1)]
    row = random_logits(1, 40)[0]
    drawn = np.array([draw(np.tile(row, (5, 1)), rows, [at] * 5) for at in range(400)])
    assert set(drawn[:, 0]) == {row.argmax()}
    assert len(set(drawn[:, 1])) > 15
    for i in (2, 3, 4):
        allowed = set(np.flatnonzero(oracle_kept(row, rows[i], 0.0)).tolist())
        assert 1 < len(allowed) < 15 and set(drawn[:, i].tolist()) == allowed


def test_a_draw_depends_on_seed_and_position_only():
    """64 rows with mixed settings: each alone, in 2 and in 7, in another order, and among padding rows of greedy."""
    logits, at = random_logits(64, 300), np.random.default_rng(1).integers(0, 9000, 64)
    filters: list[dict[str, Any]] = [{}, {"top_k": 9}, {"top_p": 0.8}, {"min_p": 0.1}]
    rows = [SamplingParams(0.5 + i % 3, seed=i * 977, **filters[i % 4]) for i in range(64)]
    all64 = draw(logits, rows, at)
    for size in (1, 2, 7):
        for first in range(0, 64 - size, size if size > 1 else 9):
            part = slice(first, first + size)
            assert draw(logits[part], rows[part], at[part]) == all64[part]
    order = np.random.default_rng(2).permutation(64)
    assert draw(logits[order], [rows[i] for i in order], at[order]) == [all64[i] for i in order]
    mixed = draw(np.repeat(logits[:7], 2, axis=0), [p for r in rows[:7] for p in (r, SamplingParams())], np.repeat(at[:7], 2))
    assert mixed[::2] == all64[:7] and mixed[1::2] == logits[:7].argmax(axis=1).tolist()
    moved = draw(logits, rows, at + 1)
    assert sum(a != b for a, b in zip(all64, moved, strict=True)) > 16  # another position is another draw


PROBABILITIES = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01])
LOGITS = np.log(PROBABILITIES)
COUNT = 6400


def chi_square(drawn: Any, expected: np.ndarray) -> float:
    seen = np.bincount(np.ravel(drawn), minlength=len(expected))
    live = expected > 0
    assert not seen[~live].any(), "a token of probability 0 was drawn"
    return float(((seen - COUNT * expected)[live] ** 2 / (COUNT * expected[live])).sum())


@functools.cache
def bound(freedom: int) -> float:
    """A chi-square variable exceeds this once in 30,000 (Wilson and Hilferty 1931, 4 standard deviations)."""
    return freedom * (1 - 2 / (9 * freedom) + 4 * math.sqrt(2 / (9 * freedom))) ** 3


def softened(temperature: float, keep: int) -> np.ndarray:
    odds = np.where(np.arange(6) < keep, PROBABILITIES ** (1 / temperature), 0)
    return odds / odds.sum()


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"temperature": 1.0}, softened(1.0, 6)),
        ({"temperature": 2.0}, softened(2.0, 6)),
        ({"temperature": 0.5}, softened(0.5, 6)),
        ({"temperature": 1.0, "top_k": 3}, softened(1.0, 3)),
        ({"temperature": 2.0, "top_p": 0.5}, softened(2.0, 2)),  # 0.316 + 0.273: two tokens reach a half
        ({"temperature": 1.0, "min_p": 0.2}, softened(1.0, 4)),
        ({"temperature": 1.0, "top_k": 4, "top_p": 0.7}, softened(1.0, 2)),  # of the 0.95 that top-k left
    ],
)
@pytest.mark.parametrize("vary", ["position", "seed"])
def test_distribution(vary: str, params: dict[str, Any], expected: np.ndarray):
    """6400 draws of one seed at different positions, or of different seeds at one position."""
    drawn = []
    for first in range(0, COUNT, 64):
        numbers = range(first, first + 64)
        rows = [SamplingParams(**params, seed=n if vary == "seed" else 5) for n in numbers]
        drawn += draw(np.tile(LOGITS, (64, 1)), rows, numbers if vary == "position" else [77] * 64)
    assert chi_square(drawn, expected) < bound(int((expected > 0).sum()) - 1)


def test_the_chi_square_sees_a_wrong_temperature():
    draws = np.random.default_rng(0).choice(6, COUNT, p=softened(1.3, 6))
    assert chi_square(draws, softened(1.0, 6)) > bound(5)
    assert chi_square(np.random.default_rng(0).choice(6, COUNT, p=softened(1.0, 6)), softened(1.0, 6)) < bound(5)


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-37, 1.2e-38, 1e-45, 1e-300])
@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}], ids=str)
def test_a_temperature_near_zero_is_greedy(temperature: float, filters: dict[str, Any]):
    """Logits over a tiny temperature leave f32's range; the likeliest token must win all the same."""
    logits = 20 * random_logits(8, 50)
    rows = [SamplingParams(temperature, seed=i, **filters) for i in range(8)]
    assert draw(logits, rows, range(8)) == logits.argmax(axis=1).tolist()


def test_a_huge_temperature_is_uniform():
    drawn = [
        t for n in range(0, COUNT, 64) for t in draw(np.tile(LOGITS, (64, 1)), [SamplingParams(1e30)] * 64, range(n, n + 64))
    ]
    assert chi_square(drawn, np.full(6, 1 / 6)) < bound(5)


def test_settings_beyond_the_arrays_they_are_packed_in():
    """f32 would turn a temperature of 1e39 into infinity, and i32 cannot hold every top_k."""
    with pytest.raises(UserError, match=r"temperature is 1e\+39; it must lie in \[0, 3.4e\+38\]"):
        SamplingParams(1e39)
    assert draw(random_logits(1, 20), [SamplingParams(1.0, top_k=2**40)], [0]) == draw(
        random_logits(1, 20), [SamplingParams(1.0)], [0]
    )
