"""Queueing results. Oracles: textbook special cases, and simulations in plain NumPy that know no formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from costmodel.concurrency.queueing import MG1, BatchService, batch_limit, concurrency, full_batches
from models.errors import UserError


def test_little():
    """20 requests/s that stay 1.5 s are 30 within."""
    assert concurrency(20.0, 1.5) == 30.0


def lindley(arrivals: np.ndarray, services: np.ndarray) -> float:
    """Mean s in the queue of one server, by Lindley's recursion, after the first tenth."""
    gaps, wait, total = np.diff(arrivals), 0.0, 0.0
    skip = len(services) // 10
    for i in range(1, len(services)):
        wait = max(wait + services[i - 1] - gaps[i - 1], 0.0)
        total += wait if i >= skip else 0.0
    return total / (len(services) - skip)


def test_mg1_special_cases():
    """M/M/1 at load 0.8: W = 1 / (mu - lambda). M/D/1 waits half as long. Little: 3.2 wait."""
    mm1 = MG1(0.8, 1.0, 1.0)
    assert (mm1.residence, mm1.wait, mm1.waiting) == (pytest.approx(5.0), pytest.approx(4.0), pytest.approx(3.2))
    assert MG1(0.8, 1.0).wait == pytest.approx(2.0)
    assert MG1.of(0.5, [1.0, 1.0, 2.0]).wait == pytest.approx(0.5 * 2.0 / (2 * (1 - 0.5 * 4 / 3)))


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_mg1_as_drawn(load: float):
    """Service of 1 or 4 s, as prompts short and long: within 5 %."""
    draw = np.random.default_rng(1)
    services = draw.choice([1.0, 4.0], 100_000, p=[0.8, 0.2])
    queue = MG1.of(load / float(services.mean()), services.tolist())
    arrivals = np.cumsum(draw.exponential(1 / queue.rate, len(services)))
    assert queue.wait == pytest.approx(lindley(arrivals, services), rel=0.05)


def exact(rate: float, base: float, each: float) -> float:
    """Mean s from arrival to end."""
    return solved(rate, base, each)[0]


def solved(rate: float, base: float, each: float, most: int = 700) -> tuple[float, float]:
    """(mean s from arrival to end, mean size of a batch) where a free server takes all that wait, exactly but for batches beyond `most`.

    The next batch is who comes during this one, a Poisson number, or one: a Markov chain, whose stationary distribution is solved for.
    A request stays its own batch (size-biased), and before it what is left of the batch that it finds (PASTA).
    """
    sizes = np.arange(1, most + 1)
    times = base + each * sizes
    counts = np.arange(most + 1)
    steps = np.exp(counts * np.log(rate * times)[:, None] - rate * times[:, None] - [math.lgamma(n + 1) for n in counts])
    steps = np.column_stack([steps[:, 0] + steps[:, 1], steps[:, 2:]])
    system = (steps / steps.sum(1, keepdims=True)).T - np.eye(most)
    system[-1] = 1.0
    share = np.linalg.solve(system, np.eye(most)[-1])
    assert abs(share[-1]) < 1e-9, "larger batches matter"
    size = float(share @ sizes)
    return float(share @ (sizes * times) + rate * (share @ times**2) / 2) / size, size


@pytest.mark.parametrize("rate", [1.0, 20.0, 60.0, 100.0, 150.0, 190.0])
@pytest.mark.parametrize(("base", "each"), [(0.005, 0.005), (0.050, 0.005), (0.001, 0.005)])
def test_batch_service_lies_between_its_bounds(rate: float, base: float, each: float):
    """At loads of 0.005 to 0.95, where the base counts for much or for little. The upper bound is said to be close: within 9 %."""
    queue, found = BatchService(rate, base, each), exact(rate, base, each)
    assert queue.least <= found * (1 + 1e-9) and found <= queue.most * (1 + 1e-9)
    assert queue.most <= 1.09 * found


@pytest.mark.parametrize(("rate", "base", "each"), [(20.0, 0.05, 0.005), (100.0, 0.005, 0.005), (190.0, 0.001, 0.005)])
def test_where_the_upper_bound_comes_from(rate: float, base: float, each: float):
    """Two ways to the same figure: the mean by the size of a batch, at the smallest sizes there can be, and the published bounds. Given
    the mean size that a solved chain has, it is that chain's time; and larger batches mean shorter stays."""
    queue = BatchService(rate, base, each)
    least = (1.0, rate * base / (1 - queue.load))
    assert queue.most == pytest.approx(min(map(queue.chain, least)), rel=1e-12)
    time, size = solved(rate, base, each)
    assert queue.chain(size) == pytest.approx(time, rel=1e-9) and size >= max(least)
    stays = [queue.chain(max(least) * more) for more in (1.0, 1.1, 1.5, 3.0)]
    assert stays == sorted(stays, reverse=True)


def test_the_lower_bound_by_hand():
    """Rate 100, 5 ms and 5 ms: batches of 1 to (0.5 + exp(-1)) / 0.5 = 1.74. Least at 1: 10 ms, and 100 x 0.01^2 / 2 before."""
    assert BatchService(100.0, 0.005, 0.005).least == pytest.approx(0.015)


def test_the_chain_is_what_a_server_does():
    """40,000 requests, one event at a time: within 3 %."""
    rate, base, each, count = 60.0, 0.05, 0.005, 40_000
    arrivals = np.cumsum(np.random.default_rng(2).exponential(1 / rate, count))
    free, i, total = 0.0, 0, 0.0
    while i < count:
        start = max(free, arrivals[i])
        j = int(np.searchsorted(arrivals, start, side="right"))
        free = start + base + each * (j - i)
        total += (free - arrivals[i:j]).sum()
        i = j
    assert total / count == pytest.approx(exact(rate, base, each), rel=0.03)


def test_batch_service_alone():
    """At almost no load a request is served alone: base + each, both bounds."""
    queue = BatchService(1e-6, 0.05, 0.005)
    assert queue.least == pytest.approx(0.055, rel=1e-4) and queue.most == pytest.approx(0.055, rel=1e-4)


@pytest.mark.parametrize("load", [0.2, 0.6, 0.9])
def test_full_batches_lie_between_their_bounds(load: float):
    """Batches of 8 that take 100 ms, queueing by Lindley's recursion over batches."""
    size, took, count = 8, 0.1, 40_000
    rate = load * size / took
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1 / rate, size * count)).reshape(count, size)
    forming = (arrivals[:, -1:] - arrivals).mean()
    drawn = forming + lindley(arrivals[:, -1], np.full(count, took)) + took
    low, high = full_batches(rate, size, took)
    assert low * 0.99 <= drawn <= high * 1.01


def test_a_limit_of_batches():
    """64 rows in 7.34 ms draw 8,719 tokens/s (facts.md section 2): 4,360 are half of that."""
    assert batch_limit(4359.5, 64, lambda size: 0.00734) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: MG1(1.0, 1.0),
            r"M/G/1: 1 requests/s are a load of 1, and from 1 on the queue grows without end; stay below 1/s",
        ),
        (lambda: MG1(3.0, 0.5), r"a load of 1\.5, .* stay below 2/s"),
        (lambda: MG1(1.0, 0.5, -1.0), "variance of service times is -1"),
        (lambda: MG1(1.0, 0.5, math.inf), "variance of service times is inf"),
        (lambda: MG1.of(1.0, []), "service times is empty"),
        (lambda: BatchService(200.0, 0.01, 0.005), r"batch service: 200 requests/s are a load of 1, .* stay below 200/s"),
        (lambda: BatchService(1.0, 0.0, 0.005), "seconds of a batch is 0"),
        (lambda: batch_limit(100.0, 8, lambda size: 0.1), r"batches of 8: 100 requests/s are a load of 1\.25, .* below 80/s"),
        (lambda: batch_limit(1.0, 0, lambda size: 0.1), "batches of 0 requests"),
        (lambda: full_batches(80.0, 8, 0.1), "a load of 1,"),
        (lambda: concurrency(0.0, 1.0), "arrival rate is 0"),
        (lambda: concurrency(1.0, math.nan), "mean residence is nan"),
    ],
)
def test_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
