"""Thinning. Oracles: counting values one by one, and sums that binning may not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.reporting.thin import binned, distribution, extremes, spread

finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(values=st.lists(finite, min_size=1, max_size=60), most=st.integers(2, 30), at=finite)
def test_a_distribution_says_what_share_is_at_most_so_large(values: list[float], most: int, at: float):
    """Drawn as steps, the curve is the share of values that are counted, exact where all are drawn, else within the stated error."""
    curve = distribution(values, most)
    drawn = max((y for x, y in zip(curve.x, curve.y, strict=True) if x <= at), default=0.0)
    counted = sum(value <= at for value in values) / len(values)
    if curve.thinned:
        assert counted - 1 / (most - 1) - 1e-12 < drawn <= counted + 1e-12
    else:
        assert drawn == pytest.approx(counted)
    assert len(curve.x) <= most and curve.whole == len(values)
    assert curve.x[0] == min(values) and curve.x[-1] == max(values) and curve.y[-1] == 1


def test_a_distribution_by_hand():
    curve = distribution([3.0, 1.0, 2.0, 2.0])
    assert curve.x.tolist() == [1, 2, 2, 3] and curve.y.tolist() == [0.25, 0.5, 0.75, 1.0]


@given(y=st.lists(finite, min_size=1, max_size=80), most=st.integers(4, 30))
def test_extremes_survive(y: list[float], most: int):
    """Nothing is invented, and no peak is lost: not the first, the last, the least or the largest, of the whole or of a part."""
    x = [float(i) for i in range(len(y))]
    curve = extremes(x, y, most)
    assert len(curve.x) <= most and set(zip(curve.x, curve.y, strict=True)) <= set(zip(x, y, strict=True))
    assert (curve.x[0], curve.x[-1]) == (x[0], x[-1]) and (curve.y.min(), curve.y.max()) == (min(y), max(y))
    assert (np.diff(curve.x) > 0).all() and curve.thinned == (len(y) > most)


@given(
    steps=st.lists(st.tuples(st.floats(1e-3, 1e3), st.integers(0, 64), st.integers(0, 8)), min_size=1, max_size=60),
    bins=st.integers(1, 20),
)
def test_bins_lose_no_step(steps: list[tuple[float, int, int]], bins: int):
    times, rows, padded = zip(*steps, strict=True)
    found = binned(times, [rows, padded], bins)
    assert found.steps.sum() == len(steps)
    assert (found.means * found.steps).sum(1) == pytest.approx([sum(rows), sum(padded)], abs=1e-9)
    assert len(found.start) <= bins and found.start[-1] + found.seconds <= max(times) * (1 + 1e-9)


def test_a_bin_holds_the_steps_of_its_time():
    """10 s in 5 bins: steps at 1 and 2 s fall into the first, those at 9, 9.5 and 10 s into the last; the empty ones are left out."""
    found = binned([1.0, 2.0, 9.0, 9.5, 10.0], [[2, 4, 8, 10, 12]], 5)
    assert (
        found.start.tolist() == pytest.approx([0, 8]) and found.means.tolist() == [[3, 10]] and found.steps.tolist() == [2, 3]
    )


@given(count=st.integers(0, 5000), most=st.integers(2, 100))
def test_a_spread_reaches_both_ends(count: int, most: int):
    kept = spread(count, most)
    assert len(kept) == min(count, most)
    assert not count or (kept[0], kept[-1]) == (0, count - 1)
