"""The slope test. Oracles: SciPy's regression on the same means, and queues of which theory says whether they are stable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from jaxserve.load.stability import BATCHES, LEAST, SETTLES, growth


def waits(rate: float, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One server, Poisson arrivals, a service of 1 s (Lindley's recursion): arrival times and waits."""
    rng = np.random.default_rng(seed)
    arrivals, free, found = np.cumsum(rng.exponential(1 / rate, n)), 0.0, []
    for now in arrivals:
        found.append(max(free - now, 0.0))
        free = max(now, free) + 1.0
    return arrivals, np.array(found)


@pytest.mark.parametrize("seed", range(5))
def test_slope_and_p_are_those_of_a_regression(seed: int):
    x, y = waits(0.9, 400, seed)
    skip = int(len(x) * SETTLES)
    mx, my = ([part.mean() for part in np.array_split(v[skip:], BATCHES)] for v in (x, y))
    expected = stats.linregress(mx, my, alternative="greater")
    found = growth(x, y)
    assert found.slope == pytest.approx(expected.slope) and found.p == pytest.approx(expected.pvalue)


def test_overload_grows_and_a_steady_server_does_not():
    """Above 1 the wait grows by rate - 1 s a second of arrivals; 200 steady queues are called unsteady about as often as is allowed."""
    for seed in range(20):
        assert growth(*waits(1.3, 400, seed)).grows
        assert growth(*waits(1.3, 20_000, seed)).slope == pytest.approx(0.3, abs=0.04)
    false = sum(growth(*waits(0.7, 400, seed)).grows for seed in range(200))
    assert false <= 8


def test_too_few_or_no_time():
    few = int(LEAST / (1 - SETTLES)) - 2
    assert not growth(range(few), range(few)).known and not growth([1.0] * 100, range(100)).known
    assert math.isnan(growth([], []).slope)


def test_order_and_gaps_do_not_matter():
    x, y = waits(1.2, 300, 3)
    some = np.where(np.arange(300) % 7 == 0, math.nan, y)
    order = np.random.default_rng(0).permutation(300)
    assert growth(x[order], some[order]) == growth(x, some)


def test_a_line_without_error():
    assert growth(range(100), range(100)).grows
    assert not growth(range(100), [5.0] * 100).grows and not growth(range(100), range(100, 0, -1)).grows


def test_a_rise_that_is_sure_but_small_does_not_matter():
    """From 100 to 101 s within the run."""
    found = growth(range(1000), 100 + np.arange(1000) / 1000)
    assert found.p < 1e-6 and not found.grows
