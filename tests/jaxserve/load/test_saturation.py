"""The search for saturation. Oracle: queues whose limit theory knows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jaxserve.load.recorder import RequestRecord
from jaxserve.load.saturation import judge, saturate
from jaxserve.load.slo import SLO
from models.errors import UserError
from tests.jaxserve.load.records import record, served


def queue(rate: float, service: float = 1.0, n: int = 3000, seed: int = 0) -> list[RequestRecord]:
    """One server, Poisson arrivals, fixed service (Lindley's recursion); the token comes at the end of the service."""
    rng, free, now, records = np.random.default_rng(seed), 0.0, 0.0, []
    for i in range(n):
        now += rng.exponential(1 / rate)
        begin = max(now, free)
        free = begin + service
        records.append(served(i, now, free - now, submitted=now, ready=now, started=begin, prefilled=free))
    return records


def test_it_finds_where_the_wait_passes_the_limit():
    """M/D/1: P95 of the stay is 3 s at some load; tried on a grid with far more requests."""
    slo = SLO(ttft={95: 3.0})
    found = saturate(queue, slo, low=0.05)
    assert 0 < found.above / found.rate - 1 <= 0.05 and found.best is not None
    truth = next(rate for rate in np.arange(0.5, 1.0, 0.01) if slo.verdicts(queue(rate, n=40_000, seed=1))[0].found > 3.0)
    assert found.rate == pytest.approx(truth, rel=0.08)
    residence = np.mean([record.end - record.intended for record in queue(found.rate)])
    assert found.limit == math.ceil(found.rate * residence) and str(found.limit) in found.verdict
    assert found.best.most >= found.limit


def test_work_that_piles_up_is_no_rate_however_loose_the_limit():
    """A limit of an hour is met by any finite run; the slope is not."""
    found = saturate(queue, SLO(ttft={95: 3600.0}), low=0.3)
    assert 0.8 <= found.rate <= 1.05 and found.above > 1.0 - 1e-9
    bad = [probe for probe in found.probes if not probe.holds]
    assert bad and all(probe.why == "work piles up" and probe.trend.grows for probe in bad)


def test_everything_holds_or_nothing():
    def quick(rate: float) -> list[RequestRecord]:
        return [served(i, i / rate, 0.001) for i in range(200)]

    all_hold = saturate(quick, SLO(ttft={95: 1.0}), low=1.0, high=50.0)
    assert all_hold.rate == 50.0 and all_hold.above == math.inf and "holds at every rate" in all_hold.verdict
    assert [probe.rate for probe in all_hold.probes] == [1, 2, 4, 8, 16, 32, 50]
    none = saturate(quick, SLO(ttft={95: 0.0001}), low=1.0, probes=5)
    assert none.rate == 0 and none.limit is None and none.best is None and len(none.probes) == 5
    assert "at no rate that was tried, down to 0.0625/s: TTFT P95 1 ms" in none.verdict
    assert none.to_json()["limit"] is None


def test_the_admission_limit_is_rate_times_stay():
    """40/s that stay a third of a second are 13.3 at once."""

    def steady(rate: float) -> list[RequestRecord]:
        return [served(i, i / rate, 1 / 3) for i in range(200)]

    found = saturate(steady, SLO(ttft={95: 1.0}), low=40.0, high=40.0)
    assert found.limit == 14 and found.best is not None and found.best.most in (14, 15)
    assert "admission limit 14 in flight = 40/s x 0.3333 s (Little)" in found.verdict


def test_it_begins_too_high():
    found = saturate(queue, SLO(ttft={95: 3.0}), low=40.0)
    assert 0.5 < found.rate < 1.0 and [probe.rate for probe in found.probes][:2] == [40.0, 20.0]


def test_refusals_do_not_make_it_fast():
    """A server that refuses all but ten a second is quick at any rate, and holds none of them."""

    def picky(rate: float) -> list[RequestRecord]:
        times = [i / rate for i in range(200)]
        return [
            served(i, t, 0.01) if i % max(round(rate / 10), 1) == 0 else record(i, t, reason="refused")
            for i, t in enumerate(times)
        ]

    found = saturate(picky, SLO(ttft={95: 1.0}), low=2.0)
    assert 8 <= found.rate <= 15


def test_probes_are_bounded():
    assert len(saturate(queue, SLO(ttft={95: 3.0}), low=0.05, probes=3).probes) == 3
    wrongs: tuple[dict[str, Any], ...] = (
        {"low": 0.0},
        {"low": 2.0, "high": 1.0},
        {"low": 1.0, "probes": 0},
        {"low": 1.0, "tolerance": 0.0},
    )
    for wrong in wrongs:
        with pytest.raises(UserError):
            saturate(queue, SLO(ttft={95: 3.0}), **wrong)


def test_nothing_was_measured():
    assert not judge(1.0, [], SLO(ttft={95: 1.0})).holds
