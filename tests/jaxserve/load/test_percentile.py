"""Percentiles. Oracles: counting, NumPy's rule of the same name, and the binomial distribution in whole numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.load.percentile import FEW, LEVEL, RULE, enough, interval, percentile
from jaxserve.load.quantiles import PERCENTS, Quantiles
from models.errors import UserError

values = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


@given(values, st.integers(1, 100))
def test_it_is_the_smallest_value_that_covers_enough(seen: list[float], q: int):
    found = percentile(seen, q)
    assert found in seen
    assert sum(value <= found for value in seen) * 100 >= q * len(seen)
    assert sum(value < found for value in seen) * 100 < q * len(seen)
    assert found == np.percentile(seen, q, method="inverted_cdf")


@given(st.integers(1, 2000), st.decimals("0.1", 100, places=1))
def test_the_rank_is_exact(n: int, q: Decimal):
    """Oracle: whole numbers; the values are their own ranks."""
    found = percentile(range(1, n + 1), float(q))
    assert (found - 1) * 1000 < int(q * 10) * n <= found * 1000


def test_by_hand():
    assert percentile(range(1, 1001), 16.1) == 161  # 16.1 * 1000 / 100 of floats is above 161
    assert percentile([15, 20, 35, 40, 50], 30) == 20  # the textbook's example of the nearest rank
    assert percentile(range(1, 11), 99) == 10 and percentile(range(1, 101), 99) == 99 and percentile([7], 50) == 7
    assert math.isnan(percentile([], 50))
    assert "nearest rank" in RULE
    with pytest.raises(UserError, match="above 0"):
        percentile([1.0], 0)


def binomial(n: int, p: Fraction) -> list[Fraction]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@given(st.integers(1, 90), st.sampled_from([50, 90, 95]))
def test_the_interval_covers_what_it_says_and_no_narrower_one_does(n: int, q: int):
    """Of n values the number below the true percentile is binomial; each tail in whole numbers."""
    chance, tail = binomial(n, Fraction(q, 100)), Fraction(25, 1000)
    below = [sum(chance[:k]) for k in range(n + 2)]  # P(B < k)
    lows = [k for k in range(1, n + 1) if below[k] <= tail]
    highs = [k for k in range(1, n + 1) if 1 - below[k] <= tail]
    found = interval(range(1, n + 1), q)
    assert found == ((max(lows), min(highs)) if lows and highs else None)
    assert enough(n, q) == (found is not None)


def test_far_too_few_and_just_enough():
    """Ten values say nothing of a P99 (the public report); the smallest n with q^n <= 2.5 %."""
    assert Quantiles.of(range(10)).few == (90, 95, 99)
    for q in (90, 95, 99):
        least = math.ceil(math.log(0.025) / math.log(q / 100))
        assert not enough(least - 1, q) and enough(least, q) and f"{least} for P{q}" in FEW
    assert not enough(5, 50) and enough(6, 50) and "6 for P50" in FEW


def test_many_values():
    """A million gaps between tokens: close to the normal interval, and quick."""
    n, q = 1_000_000, 95
    low, high = interval(np.arange(1, n + 1), q) or (0, 0)
    reach = 1.959964 * math.sqrt(n * 0.95 * 0.05)
    assert low == pytest.approx(0.95 * n - reach, abs=2) and high == pytest.approx(0.95 * n + reach, abs=2)


def test_coverage_by_drawing():
    """2,000 samples of 100 from an exponential: the interval of P90 holds the true one at least as often as it says."""
    rng, truth = np.random.default_rng(1), math.log(10)
    found = [interval(rng.exponential(size=100), 90) for _ in range(2000)]
    held = np.mean([low <= truth <= high for low, high in filter(None, found)])
    assert all(found) and LEVEL - 0.01 <= held <= LEVEL + 0.035


def test_quantiles_leave_out_what_was_not_there():
    seen = Quantiles.of([1.0, math.nan, 3.0])
    assert (seen.n, seen.mean, seen.p50, seen.most) == (2, 2.0, 1.0, 3.0)
    none = Quantiles.of([])
    assert none.n == 0 and math.isnan(none.p99) and none.few == PERCENTS
    plain = none.to_json()
    assert plain["p50"] is None and plain["intervals"]["p99"] is None and plain["few"] == ["p50", "p90", "p95", "p99"]
