"""Sizes along an axis. Oracle: every set of sizes tried."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jaxserve.bucketing.sizes import best_sizes, halvings, sets


def cost_of(cost: np.ndarray, sizes: tuple[int, ...]) -> float:
    return sum(cost[demand, next(size for size in sizes if size >= demand)] for demand in range(len(cost)))


def all_sets(count: int) -> list[tuple[int, ...]]:
    return [(*some, count - 1) for k in range(count) for some in itertools.combinations(range(count - 1), k)]


@given(st.integers(1, 7).flatmap(lambda n: arrays(float, (n, n), elements=st.integers(0, 99).map(float))), st.integers(1, 9))
def test_no_set_of_as_many_sizes_costs_less(cost: np.ndarray, most: int):
    """Any costs at all: nothing needs to grow with the size."""
    found = best_sizes(cost, most)
    counts, costs = [len(best.sizes) for best in found], [best.cost for best in found]
    assert counts[0] == 1 and counts == sorted(set(counts)) and costs == sorted(set(costs), reverse=True) and counts[-1] <= most
    for best in found:
        assert best.cost == pytest.approx(cost_of(cost, best.sizes))
        assert best.cost == pytest.approx(
            min(cost_of(cost, some) for some in all_sets(len(cost)) if len(some) <= len(best.sizes))
        )
    rest = min(cost_of(cost, some) for some in all_sets(len(cost)) if len(some) <= most)
    assert found[-1].cost == pytest.approx(rest)


def test_by_hand():
    """Steps of 1, 3 and 4 rows, 10, 5 and 1 of them, each a second a row given: 1 and 4 cost 10 + 24, 3 and 4 cost 45 + 4."""
    counts, sizes = np.array([10, 0, 5, 1.0]), np.arange(1.0, 5)
    found = best_sizes(counts[:, None] * sizes[None, :], 9)
    assert [(best.cost, best.sizes) for best in found] == [(64.0, (3,)), (34.0, (0, 3)), (29.0, (0, 2, 3))]


def test_sets():
    assert sorted(sets(4)) == sorted(all_sets(4)) and len(list(sets(8))) == 128 and list(sets(1)) == [(0,)]


def test_halvings():
    assert list(halvings(8, 3)) == [(8,), (4, 8), (2, 4, 8)]
    assert list(halvings(6, 9)) == [(6,), (4, 6), (2, 4, 6), (1, 2, 4, 6)]
    assert list(halvings(1, 2)) == [(1,)] and list(halvings(8, 0)) == []
