"""Arrivals. Oracles: the moments and the distributions of the processes, with the errors of their means."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from jaxserve.load.arrivals import Arrivals, Constant, Gamma, Poisson, Ramp, Replay
from models.errors import UserError


def drawn(process: Arrivals, n: int, seed: int = 0) -> np.ndarray:
    return np.array(list(itertools.islice(process.times(np.random.default_rng(seed)), n)))


def gaps(process: Arrivals, n: int) -> np.ndarray:
    return np.diff(drawn(process, n), prepend=0.0)


def test_poisson_is_not_biased():
    """The public report: 10,000 gaps at 10/s, mean 0.1 s within four standard errors, unclipped, and the last where it falls."""
    found = gaps(Poisson(10.0), 10_000)
    assert found.mean() == pytest.approx(0.1, abs=4 * 0.1 / math.sqrt(10_000))
    assert stats.kstest(found, "expon", args=(0, 0.1)).pvalue > 0.001
    assert found.max() > 0.6 and found.min() < 1e-4  # e^-6 of 10,000 gaps are longer: a clipped draw has none
    lasts = [drawn(Poisson(10.0), 100, seed)[-1] for seed in range(300)]
    assert np.mean(lasts) == pytest.approx(10.0, abs=4 / math.sqrt(300))  # Erlang of 100 gaps: mean 10, deviation 1
    assert np.std(lasts) == pytest.approx(1.0, abs=0.2)


def test_gaps_are_independent():
    found = gaps(Poisson(3.0), 10_000)
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 4 / math.sqrt(10_000)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma(burstiness: float):
    """Mean 1 / rate, coefficient of variation 1 / sqrt(burstiness)."""
    found, cv = gaps(Gamma(5.0, burstiness), 20_000), 1 / math.sqrt(burstiness)
    assert found.mean() == pytest.approx(0.2, abs=4 * 0.2 * cv / math.sqrt(20_000))
    assert found.std() / found.mean() == pytest.approx(cv, rel=0.05)
    assert stats.kstest(found, "gamma", args=(burstiness, 0, 0.2 / burstiness)).pvalue > 0.001


def test_constant():
    """facts.md, section 5: every 20 ms; a product, so that a million of them are still where they belong."""
    found = drawn(Constant(50.0), 8)
    assert found.tolist() == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14])
    assert next(itertools.islice(Constant(10.0).times(np.random.default_rng(0)), 1_000_000, None)) == 100_000.0


@pytest.mark.parametrize(("first", "last"), [(10.0, 30.0), (30.0, 10.0), (0.0, 20.0), (20.0, 20.0)])
def test_ramp(first: float, last: float):
    """The number of arrivals up to t is Poisson with the area under the rate as its mean, on the ramp and after it."""
    runs, over = 200, 10.0
    areas = {t: first * t + (last - first) * t * t / (2 * over) for t in (2.5, 5.0, 10.0)}
    areas[15.0] = areas[10.0] + 5 * last
    counts: dict[float, list[int]] = {t: [] for t in areas}
    for seed in range(runs):
        times = drawn(Ramp(first, last, over), 700, seed)
        assert (np.diff(times) >= 0).all() and times[-1] > 15
        for t in areas:
            counts[t].append(int((times <= t).sum()))
    for t, area in areas.items():
        assert np.mean(counts[t]) == pytest.approx(area, abs=4 * math.sqrt(area / runs))


def test_a_ramp_down_to_nothing_ends():
    counts = [len(list(Ramp(20.0, 0.0, 10.0).times(np.random.default_rng(seed)))) for seed in range(200)]
    assert np.mean(counts) == pytest.approx(100.0, abs=4 * math.sqrt(100 / 200))


def test_replay():
    process = Replay.of([0.0, 1.0, 1.0, 4.0], 0.5)
    assert drawn(process, 10).tolist() == [0.0, 0.5, 0.5, 2.0] and process.to_json()["time_scale"] == 0.5
    with pytest.raises(UserError, match="sort"):
        Replay.of([1.0, 0.5])


def test_one_seed_one_load():
    for process in (Poisson(2.0), Gamma(2.0, 0.5), Ramp(1.0, 5.0, 9.0)):
        assert drawn(process, 50, 7).tolist() == drawn(process, 50, 7).tolist() != drawn(process, 50, 8).tolist()


def test_which_are_steady():
    assert [each.steady for each in (Poisson(1), Gamma(1, 1), Constant(1), Replay((0.0,)))] == [True] * 4
    assert not Ramp(1, 2, 3).steady


@pytest.mark.parametrize(
    "made",
    [
        lambda: Poisson(0.0),
        lambda: Poisson(math.inf),
        lambda: Gamma(1.0, 0.0),
        lambda: Gamma(-1.0, 1.0),
        lambda: Constant(math.nan),
        lambda: Ramp(0.0, 0.0, 1.0),
        lambda: Ramp(-1.0, 2.0, 1.0),
        lambda: Ramp(1.0, 2.0, 0.0),
        lambda: Replay.of([0.0], 0.0),
    ],
)
def test_no_such_process(made):
    with pytest.raises(UserError, match=r"above 0|at least 0"):
        made()
