"""Intervals of simulated times. Oracles: arithmetic by hand; draws whose distribution is known; a made-up service that strays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jaxserve.predict.analytical import Analytical
from jaxserve.recorded_service.compare import KNOWN, LEVEL, WIDE, Strayed, compare, ends, strays
from jaxserve.recorded_service.deployed import deployed
from jaxserve.recorded_service.fit import fit
from jaxserve.recorded_service.play import play
from jaxserve.recorded_service.recorded import Recorded
from jaxserve.recorded_service.step_time import Counted, Parameters, StepTime
from jaxserve.scheduling.plan import Plan
from tests.jaxserve.recorded_service.services import META, asked


def test_order_statistics_by_hand():
    """Of 99 errors, 90 % lie between the 5th and the 95th: (99 + 1) x 0.95. Of 9, rank 9.5 is beyond the last, which is taken."""
    simulated = np.ones(99)
    recorded = np.exp(np.arange(1.0, 100.0) / 100)
    found = Strayed.of(np.append(recorded, math.nan), np.append(simulated, 1.0))
    assert found == pytest.approx((0.05, 0.50, 0.95))
    assert Strayed.of(recorded[:9], simulated[:9]) == pytest.approx((0.01, 0.05, 0.09))
    assert Strayed.of(np.array([math.nan]), np.array([1.0])) == KNOWN


def test_half_widths_add_as_squares():
    """ln 3 and ln 4 of two directions, and nothing else: e to the power of their hypotenuse. A direction that only lengthens adds
    nothing below."""
    one = np.array([1.0])
    low, high = ends(one, [(one / 3, one * 3), (one, one * 4)], KNOWN)
    assert low[0] == pytest.approx(1 / 3) and high[0] == pytest.approx(math.exp(math.hypot(math.log(3), math.log(4))))
    low, high = ends(2 * one, [(one * 2, one * 2)], Strayed(-0.1, 0.2, 0.5))
    assert (low[0], high[0]) == pytest.approx((2 * math.exp(-0.1), 2 * math.exp(0.5)))
    assert np.isnan(ends(np.array([math.nan]), [(one, one)], KNOWN)).all()
    assert WIDE == pytest.approx(1.6449, abs=1e-4)


def test_conformal_ends_cover_new_requests():
    """Errors of any distribution: of 20,000 new ones, those within the ends of 100 others are 90 % or a little more, on average over
    many such hundreds (Lei et al. 2018, theorem 2.2)."""
    draw = np.random.default_rng(3)
    shares = []
    for _ in range(300):
        first, later = (np.exp(draw.exponential(0.1, n) - 0.2) for n in (100, 20_000))
        left = Strayed.of(first, np.ones(100))
        shares.append(np.mean((np.log(later) >= left.low) & (np.log(later) <= left.high)))
    assert LEVEL <= np.mean(shares) + 0.01 and np.mean(shares) < LEVEL + 0.02


def test_a_service_that_strays_is_covered():
    """Services whose steps take up to 8 % more or less than their parameters say, at random: means and percentiles of requests that were
    not fitted lie in their intervals in no fewer cases than is claimed."""
    service = deployed(Recorded("x", (), META, {}))
    counted = Counted(Analytical(service.architecture, service.chip))
    inside = whole = 0
    for seed in range(3):
        draw = np.random.default_rng(seed)
        truth = StepTime(counted, Parameters(*draw.uniform(0.5, 0.9, 2).tolist()))

        def strayed(plan: Plan, truth: StepTime = truth, draw: np.random.Generator = draw) -> float:
            return truth(plan) * math.exp(draw.normal(0, 0.08))

        requests = play(service, asked(80, seed), strayed)
        found = fit(service, counted, requests, 30)
        runs = [
            play(service, requests, StepTime(counted, Parameters(*np.exp(np.log(found.parameters) + sign * np.array(axis)))))
            for axis in ((0.0, 0.0), *found.axes)
            for sign in (-WIDE, WIDE)
        ]
        middle, pairs = runs[0], [(a[30:], b[30:]) for a, b in zip(runs[2::2], runs[3::2], strict=True)]
        result = compare(requests[30:], middle[30:], pairs, strays(requests[:30], middle[:30]))
        inside += sum(error.within for error in result.errors)
        whole += len(result.errors)
        assert [each.requests for each in result.covered] == [50, 50, 50]
    assert inside >= LEVEL * whole, f"{inside} of {whole}"
