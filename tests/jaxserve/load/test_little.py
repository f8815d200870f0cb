"""Little's law. Oracles: areas by hand, a naive integral on a grid, and the law itself where it is an identity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.load.little import littles_law
from tests.jaxserve.load.records import record, served

grid = st.integers(0, 400).map(lambda n: n / 8)


def test_by_hand():
    """Open from 0 to 4 and from 2 to 10: over 0 to 10 the area is 4 + 8."""
    found = littles_law([served(0, 0.0, 4.0), served(1, 2.0, 8.0)], start=0.0, stop=10.0)
    assert found.concurrency == 1.2 and found.rate == 0.2 and found.residence == 6.0 and found.product == pytest.approx(1.2)
    assert found.curve == ((0.0, 2.0, 4.0, 10.0), (1, 2, 1, 0))
    assert "too short" in found.reason and not found.comparable


@given(st.lists(st.tuples(grid, st.integers(1, 200).map(lambda n: n / 8)), min_size=2, max_size=30))
def test_over_all_of_a_run_it_is_an_identity(requests: list[tuple[float, float]]):
    """Where everything begins and ends within the window, both sides are the same sum, whatever the load."""
    records = [served(i, at, stay) for i, (at, stay) in enumerate(requests)]
    stop = max(record.end for record in records)
    found = littles_law(records, start=0.0, stop=stop)
    assert found.product == pytest.approx(found.concurrency)
    assert found.concurrency * stop == pytest.approx(sum(stay for _, stay in requests))


@given(st.lists(st.tuples(grid, grid), min_size=2, max_size=15), st.integers(0, 20), st.integers(25, 50))
def test_concurrency_in_a_window(requests: list[tuple[float, float]], start: int, stop: int):
    """On a grid of sixteenths between which nothing happens."""
    records = [served(i, at, stay) for i, (at, stay) in enumerate(requests)]
    middles = np.arange(start * 16, stop * 16) / 16 + 1 / 32
    open_ = [sum(record.intended < t < record.end for record in records) for t in middles]
    found = littles_law(records, start=float(start), stop=float(stop))
    assert found.concurrency == pytest.approx(np.mean(open_))
    times, counts = found.curve
    at = np.searchsorted(times, middles, side="right") - 1
    assert [0 if i < 0 else counts[i] for i in at] == open_


def queue(rate: float, service: float, n: int = 2000, seed: int = 0) -> list:
    """One server, Poisson arrivals, fixed service: Lindley's recursion."""
    rng, free, now, records = np.random.default_rng(seed), 0.0, 0.0, []
    for i in range(n):
        now += rng.exponential(1 / rate)
        free = max(now, free) + service
        records.append(served(i, now, free - now))
    return records


def test_it_agrees_in_equilibrium():
    """M/D/1 at 60 %: W = s + rho s / (2 (1 - rho)) by Pollaczek and Khinchine."""
    found = littles_law(queue(0.6, 1.0, n=20_000))
    assert found.comparable and "agree within" in found.verdict and abs(found.difference) < 0.01
    assert found.residence == pytest.approx(1 + 0.6 / (2 * 0.4), rel=0.1)


@pytest.mark.parametrize(
    ("records", "steady", "said"),
    [
        ([served(0, 0.0, 1.0)], True, "too few arrivals"),
        (queue(0.5, 1.0), False, "ramp"),
        ([*queue(0.5, 1.0), record(5, 9.0, reason="refused")], True, "rejections: 1 of"),
        ([*queue(0.5, 1.0), record(5, 9.0, reason="failed")], True, "rejections: 1 of"),
        ([*queue(0.5, 1.0), record(5, 9.0, reason="unfinished")], True, "unfinished work: 1"),
        (queue(0.5, 1.0, n=5), True, "too short"),
        (queue(1.02, 1.0), True, "no equilibrium"),
    ],
)
def test_why_the_sides_may_not_be_compared(records: list, steady: bool, said: str):
    found = littles_law(records, steady=steady)
    assert not found.comparable and said in found.reason and said in found.verdict
    assert found.to_json()["comparable"] is False


def test_nothing():
    found = littles_law([])
    assert not found.comparable and math.isnan(found.product) and found.to_json()["concurrency"] is None
