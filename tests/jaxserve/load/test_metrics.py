"""Metrics. Oracle: a few requests by hand."""

from __future__ import annotations

import json
import math

import pytest

from jaxserve.load.metrics import DEFINITIONS, summarise
from jaxserve.load.slo import SLO
from tests.jaxserve.load.records import record


def test_by_hand():
    """Due at 0, sent at 0.1, tokens at 1, 2, 4; due at 10, tokens at 10.5, 11."""
    records = [record(0, 0.0, (1.0, 2.0, 4.0), sent=0.1), record(1, 10.0, (10.5, 11.0), started=10.25, ready=10.125)]
    found = summarise(records, duration=11.0, slo=SLO(ttft={95: 0.6}))
    assert (found.ttft.p50, found.ttft.most, found.ttft.mean) == (0.5, 1.0, 0.75)  # from when they were due
    assert (found.itl.n, found.itl.p50, found.itl.most) == (3, 1.0, 2.0)  # pooled: 1, 2, 0.5
    assert (found.tpot.n, found.tpot.most, found.tpot.p50) == (2, 1.5, 0.5)
    assert (found.e2e.p50, found.e2e.most) == (1.0, 4.0)
    assert (found.queue.n, found.queue.mean) == (1, 0.125)  # the other server tells nothing
    assert found.client_delay.most == pytest.approx(0.1)
    assert found.requests_per_s == pytest.approx(2 / 11) and found.tokens_per_s == pytest.approx(5 / 11)
    assert found.goodput == pytest.approx(1 / 11) and found.met is False


def test_answers_of_one_token_and_of_none():
    """The public report is a division by zero: no TPOT, no gap; and without a token no TTFT, but it is an answer and is counted."""
    found = summarise([record(0, 0.0, (1.0,)), record(1, 0.0, (), reason="stop")], duration=1.0, slo=SLO(ttft={50: 2.0}))
    assert (found.answered, found.empty, found.single) == (2, 1, 1)
    assert (found.ttft.n, found.itl.n, found.tpot.n, found.e2e.n) == (1, 0, 0, 1)
    assert math.isnan(found.tpot.p50) and found.requests_per_s == 2.0 and found.goodput == 1.0


def test_nothing_is_dropped():
    reasons = ("length", "stop", "failed", "refused", "cancelled", "expired", "unfinished")
    records = [record(i, 0.0, (1.0, 2.0) if i < 3 else (), reason=reason) for i, reason in enumerate(reasons)]
    found = summarise(records, duration=2.0, slo=SLO(ttft={95: 9.0}))
    assert found.requests == 7 and found.counts == dict.fromkeys(reasons, 1) and found.answered == 2
    assert found.ttft.n == 2 and found.client_delay.n == 7  # the failed one's token is no TTFT of an answer
    assert found.output_tokens == 6 and found.goodput == 1.0
    assert found.requests_per_s == 1.0


def test_no_time_and_no_request():
    found = summarise([], duration=0.0)
    assert math.isnan(found.requests_per_s) and found.goodput is None and found.met is None
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text)["requests_per_s"] is None


def test_every_figure_has_its_definition():
    plain = summarise([record(0, 0.0, (1.0, 2.0))], duration=2.0).to_json()
    assert plain["definitions"] == DEFINITIONS and "nearest rank" in DEFINITIONS["percentile"]
    for name in (
        "ttft",
        "itl",
        "tpot",
        "e2e",
        "queue",
        "client_delay",
        "requests_per_s",
        "tokens_per_s",
        "goodput",
        "duration",
    ):
        assert name in plain and DEFINITIONS[name]
    assert plain["ttft"]["few"] == ["p50", "p90", "p95", "p99"]
