"""How batches form. Oracles: facts.md section 5, closed forms done by hand, and a NumPy simulation that knows no formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.concurrency.forming import Erlang, Forming, deterministic_waits
from models.errors import UserError


def play(rate: float, target: int, delay: float, batches: int = 40_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(wait of the first, mean of all waits weighted by request, sizes) of batches that form one after the other, drawn gap by gap."""
    draw = np.random.default_rng(0)
    arrivals = np.concatenate([np.zeros((batches, 1)), np.cumsum(draw.exponential(1 / rate, (batches, target - 1)), 1)], 1)
    leaves = np.minimum(arrivals[:, -1], delay)
    mine = arrivals <= leaves[:, None]
    waits = np.where(mine, leaves[:, None] - arrivals, 0.0)
    return leaves, waits.sum() / mine.sum(), mine.sum(1)


def test_the_facts():
    """Rate 50/s, target 8: Erlang(7, 50), mean 140 ms. 25/s and 4: 120 ms. Unbounded above, but for a timer."""
    eight, four = Forming(50.0, 8), Forming(25.0, 4)
    assert eight.first == Erlang(7, 50.0)
    assert (eight.mean_first, four.mean_first) == (pytest.approx(0.140), pytest.approx(0.120))
    assert eight.quantile_first(0.999999) > 3 * 0.140 and eight.full == 1.0
    bounded = Forming(50.0, 8, delay=0.2)
    assert bounded.quantile_first(0.999999) == 0.2 and bounded.mean_first < 0.140


def test_a_request_every_20_ms():
    """140, 120, ... 0 ms, mean 70 ms, at most exactly 140 ms."""
    waits = deterministic_waits(0.020, 8)
    assert waits.tolist() == [i * 0.020 for i in (7, 6, 5, 4, 3, 2, 1, 0)]
    assert waits.mean() == pytest.approx(0.070) and waits.max() == 0.140
    assert deterministic_waits(0.020, 1).tolist() == [0.0]


def test_the_timer_sends_a_part():
    """After 50 ms there are the requests of 0, 20 and 40 ms; a timer that is long enough changes nothing."""
    assert deterministic_waits(0.020, 8, 0.050).tolist() == pytest.approx([0.050, 0.030, 0.010])
    assert deterministic_waits(0.020, 8, 1.0).tolist() == deterministic_waits(0.020, 8).tolist()
    assert deterministic_waits(0.020, 8, 0.0).tolist() == [0.0]


def test_erlang_by_hand():
    """One stage is exponential: median ln 2 / rate. Two: P(T <= t) = 1 - (1 + rt) exp(-rt)."""
    assert Erlang(1, 4.0).quantile(0.5) == pytest.approx(math.log(2) / 4)
    assert Erlang(2, 3.0).reached(0.5) == pytest.approx(1 - 2.5 * math.exp(-1.5))
    assert (Erlang(7, 50.0).mean, Erlang(7, 50.0).variance) == (pytest.approx(0.14), pytest.approx(7 / 2500))
    assert (Erlang(0, 5.0).quantile(0.9), Erlang(0, 5.0).reached(0.0), Erlang(3, 5.0).reached(0.0)) == (0.0, 1.0, 0.0)


@given(stages=st.integers(1, 60), rate=st.floats(0.01, 1e4), q=st.floats(0.001, 0.999))
def test_a_quantile_is_reached_with_its_probability(stages: int, rate: float, q: float):
    found = Erlang(stages, rate)
    assert found.reached(found.quantile(q)) == pytest.approx(q, abs=1e-9)


@pytest.mark.parametrize(("rate", "target", "delay"), [(50.0, 8, math.inf), (50.0, 8, 0.1), (25.0, 4, 0.05), (10.0, 2, 0.3)])
def test_as_drawn(rate: float, target: int, delay: float):
    """40,000 batches: within 5 standard errors, quantiles to 2 %."""
    forming = Forming(rate, target, delay)
    first, mean, sizes = play(rate, target, delay)

    def near(values: np.ndarray) -> float:
        return 5 * values.std() / len(values) ** 0.5 + 1e-12

    assert forming.mean_first == pytest.approx(first.mean(), abs=near(first))
    assert forming.mean_size == pytest.approx(sizes.mean(), abs=near(sizes))
    assert forming.full == pytest.approx((sizes == target).mean(), abs=near(sizes == target))
    assert forming.mean == pytest.approx(mean, rel=0.02)
    for q in (0.5, 0.95):
        assert forming.quantile_first(q) == pytest.approx(np.quantile(first, q), rel=0.02)


def test_the_mean_without_a_timer():
    """(target - 1) / (2 rate): half of what the first waits."""
    assert Forming(50.0, 8).mean == pytest.approx(0.070)
    assert (Forming(50.0, 1).mean, Forming(50.0, 1).mean_size) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Erlang(-1, 1.0), "-1 stages; there must be at least 0"),
        (lambda: Erlang(1, 0.0), "arrival rate is 0; it must be above 0"),
        (lambda: Erlang(1, math.inf), "arrival rate is inf; it must be at most"),
        (lambda: Erlang(1, 1.0).quantile(1.0), "quantile 1 is asked for; it must lie between 0 and 1"),
        (lambda: Forming(1.0, 0), "the target is 0 requests; it must be at least 1"),
        (lambda: Forming(1.0, 2, -1.0), "queue delay is -1 s; it must be at least 0"),
        (lambda: deterministic_waits(0.0, 2), "gap between arrivals is 0"),
        (lambda: deterministic_waits(1.0, 0), "the target is 0 requests"),
        (lambda: deterministic_waits(1.0, 1, math.nan), "queue delay is nan s"),
    ],
)
def test_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
