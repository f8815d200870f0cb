"""Figures side by side. Oracle: a handful of numbers by hand."""

from __future__ import annotations

import math

import pytest

from jaxserve.service.compare import METRICS, STATISTICS, Error, compare, peer_error, to_json
from jaxserve.service.recorded import Served


def test_by_hand():
    """Ten requests with TTFT 1 to 10 s; TPOT 0.5 s, but for one of one token, which has none. The simulation is twice as slow."""
    theirs = [Served(str(i), 5, 3 if i else 1, 0.0, 0.0, i + 1.0, i + (2.0 if i else 1.0)) for i in range(10)]
    ours = [r._replace(first=2 * r.first, last=2 * r.last) for r in theirs]
    found = {(e.metric, e.statistic): e for e in compare(theirs, ours)}
    assert list(found) == [(metric, statistic) for metric in METRICS for statistic in STATISTICS]
    assert {name: found["TTFT", name].recorded for name in STATISTICS} == {"mean": 5.5, "P50": 5.0, "P90": 9.0, "P99": 10.0}
    assert found["TPOT", "mean"].recorded == 0.5 and found["E2E", "P99"].recorded == 11.0
    assert all(error.relative == 1.0 for error in found.values())


def test_what_has_no_figure():
    one = [Served("a", 5, 1, 0.0, 0.0, 0.0, 0.0)]
    found = {(e.metric, e.statistic): e for e in compare(one, one)}
    assert math.isnan(found["TPOT", "P50"].recorded) and math.isnan(found["TTFT", "mean"].relative)


def test_a_peer_and_plain_data():
    error = Error("E2E", "P50", 4.0, 5.0)
    assert peer_error({("Latency", "Median"): 0.009}, error) == 0.009 and peer_error({}, error) is None
    assert to_json([error]) == [
        {"metric": "E2E", "statistic": "P50", "recorded": 4.0, "simulated": 5.0, "error": pytest.approx(0.25)}
    ]
