"""Figures side by side. Oracle: a handful of numbers by hand."""

from __future__ import annotations

import math

import pytest

from jaxserve.recorded_service.compare import (
    METRICS,
    STATISTICS,
    Compared,
    Covered,
    Error,
    Strayed,
    compare,
    peer_error,
    to_json,
)
from jaxserve.recorded_service.recorded import Served


def test_by_hand():
    """Ten requests with TTFT 1 to 10 s; TPOT 0.5 s, but for one of one token, which has none. The simulation is twice as slow."""
    theirs = [Served(str(i), 5, 3 if i else 1, 0.0, 0.0, i + 1.0, i + (2.0 if i else 1.0)) for i in range(10)]
    ours = [r._replace(first=2 * r.first, last=2 * r.last) for r in theirs]
    found = {(e.metric, e.statistic): e for e in compare(theirs, ours).errors}
    assert list(found) == [(metric, statistic) for metric in METRICS for statistic in STATISTICS]
    assert {name: found["TTFT", name].recorded for name in STATISTICS} == {"mean": 5.5, "P50": 5.0, "P90": 9.0, "P99": 10.0}
    assert found["TPOT", "mean"].recorded == 0.5 and found["E2E", "P99"].recorded == 11.0
    assert all(error.relative == 1.0 for error in found.values())


def test_what_has_no_figure():
    one = [Served("a", 5, 1, 0.0, 0.0, 0.0, 0.0)]
    found = {(e.metric, e.statistic): e for e in compare(one, one).errors}
    assert math.isnan(found["TPOT", "P50"].recorded) and math.isnan(found["TTFT", "mean"].relative)


def test_a_peer_and_plain_data():
    error = Error("E2E", "P50", 4.0, 5.0)
    assert peer_error({("Latency", "Median"): 0.009}, error) == 0.009 and peer_error({}, error) is None
    plain = to_json(Compared([error, error._replace(low=3.0, high=6.0)], [Covered("E2E", 9, 8)]))
    figure = {"metric": "E2E", "statistic": "P50", "recorded": 4.0, "simulated": 5.0, "error": pytest.approx(0.25)}
    assert plain["figures"] == [
        {**figure, "low": None, "high": None, "within": None},
        {**figure, "low": 3.0, "high": 6.0, "within": True},
    ]
    assert plain["covered"] == [{"metric": "E2E", "requests": 9, "within": 8}]


def test_intervals_by_hand():
    """Ten requests that are simulated right but for the last, which takes 3 s more. At their ends steps take 0.9 or 1.2 times as long."""
    theirs = [Served(str(i), 5, 1, 0.0, 0.0, i + 1.0, i + 1.0) for i in range(10)]
    ours = [*theirs[:9], theirs[9]._replace(first=13.0, last=13.0)]
    low, high = ([r._replace(first=r.first * by, last=r.last * by) for r in ours] for by in (0.9, 1.2))
    found = compare(theirs, ours, [(low, high)])
    ttft = {e.statistic: e for e in found.errors if e.metric == "TTFT"}
    assert (ttft["P50"].low, ttft["P50"].high) == pytest.approx((4.5, 6.0)) and ttft["P50"].within
    assert (ttft["P99"].low, ttft["P99"].high) == pytest.approx((11.7, 15.6)) and not ttft["P99"].within
    assert found.covered == [Covered("TTFT", 10, 9), Covered("TPOT", 0, 0), Covered("E2E", 10, 9)]
    metrics = dict.fromkeys(METRICS, Strayed(math.log(0.5), 0.0, 0.0))
    half = [e for e in compare(theirs, ours, (), metrics).errors if e.metric == "E2E"]
    assert [e.low for e in half] == pytest.approx([2.9, 2.5, 4.5, 6.5]) and [e.high for e in half] == [
        e.simulated for e in half
    ]
