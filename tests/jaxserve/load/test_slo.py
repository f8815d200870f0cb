"""Service level objectives. Oracle: small lists counted by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.load.recorder import RequestRecord
from jaxserve.load.slo import METRICS, SLO
from models.errors import UserError
from tests.jaxserve.load.records import record


def test_parse():
    slo = SLO.parse(["ttft-p95=250ms, itl-p95=12ms", "E2E-P99=3s"])
    assert slo == SLO(ttft={95: 0.25}, itl={95: 0.012}, e2e={99: 3.0})
    assert list(slo.limits()) == [("ttft", 95, 0.25), ("itl", 95, 0.012), ("e2e", 99, 3.0)]
    assert SLO.from_json(slo.to_json()) == slo


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttft-p95=250", "no unit"),
        ("ttft-p95=20/s", "'/s'"),
        ("ttft=250ms", "METRIC-pN=TIME"),
        ("tfft-p95=250ms", "ttft, itl, tpot, e2e"),
        ("ttft-p95", "METRIC-pN=TIME"),
        ("ttft-pmost=1s", "METRIC-pN=TIME"),
        ("ttft-p100=1s", "below 100"),
        ("ttft-p95=0ms", "above 0"),
        ("ttft-p95=1s,ttft-p95=2s", "twice"),
        ("", "METRIC-pN=TIME"),
    ],
)
def test_bad_limits(text: str, said: str):
    with pytest.raises(UserError, match=said):
        SLO.parse([text])


def test_no_limit():
    with pytest.raises(UserError, match="no limit"):
        SLO()
    with pytest.raises(UserError, match="none"):
        SLO.from_json({"ttft": {"x": 1}})


def test_below_one_step():
    """facts.md, section 4: a step of 64 rows takes 7.34 ms, so that 12 ms may be kept and 1 ms can't."""
    SLO(itl={95: 0.012}).check_step(7.34e-3, "analytical")
    with pytest.raises(UserError, match=r"itl-p95 is 1 ms, below one step, which takes 7\.34 ms \(analytical\)"):
        SLO(itl={95: 0.001}).check_step(7.34e-3, "analytical")


def test_good_requests():
    slo = SLO(ttft={95: 1.0}, itl={50: 0.1, 90: 0.5})
    assert slo.good(record(tokens=(1.0, 1.5, 2.0)))
    assert not slo.good(record(tokens=(1.1, 1.2)))  # late to begin
    assert not slo.good(record(tokens=(0.5, 1.1)))  # P90 of its one gap is 0.6
    assert slo.good(
        record(tokens=(0.5, *(0.5 + 0.01 * i for i in range(1, 20)), 2.0))
    )  # one gap of 20 is too long, and P90 not
    assert slo.good(record(tokens=(0.9,)))  # no gap, nothing to wait for
    assert not slo.good(record())  # an answer without a token never began
    for reason in ("failed", "refused", "cancelled", "expired", "unfinished"):
        assert not slo.good(record(tokens=(0.1, 0.2), reason=reason))
    assert SLO(tpot={99: 0.1}).good(record(tokens=(9.0,)))
    assert not SLO(e2e={99: 0.1}).good(record(tokens=(9.0,)))


def test_verdicts():
    """100 requests that begin after 1, 2, ... 100 ms: P90 is 90 ms."""
    records = [record(i, tokens=((i + 1) / 1000,)) for i in range(100)]
    (met,) = SLO(ttft={90: 0.09}).verdicts(records)
    (missed,) = SLO(ttft={90: 0.0899}).verdicts(records)
    assert met.found == missed.found == 0.09 and met.met and not missed.met and not met.sure and not missed.sure
    assert met.interval and met.interval[0] < 0.09 < met.interval[1] and met.word == "met, within the error"
    (sure,) = SLO(ttft={90: 0.2}).verdicts(records)
    assert sure.sure and sure.word == "met" and sure.name == "TTFT P90"
    (few,) = SLO(ttft={90: 0.2}).verdicts(records[:5])
    assert few.met and not few.sure and few.interval is None and few.word == "met, of too few to be sure"
    (lost,) = SLO(ttft={90: 0.01}).verdicts(records)
    assert lost.sure and lost.word == "missed"


def test_requests_without_an_answer_exceed_every_limit():
    """Of 20 requests 1 may fail under a P95 limit, 2 may not, however quick the others are."""
    slo = SLO(ttft={95: 1.0}, itl={95: 1.0})
    quick = [record(i, tokens=(0.1, 0.2)) for i in range(18)]
    lost = [record(20, reason="refused"), record(21, reason="failed", tokens=(0.1,))]
    assert all(verdict.met for verdict in slo.verdicts([*quick, quick[0], lost[0]]))
    assert [(verdict.met, verdict.found) for verdict in slo.verdicts([*quick, *lost])] == [(False, math.inf)] * 2
    assert not any(verdict.met for verdict in slo.verdicts(lost))
    assert slo.verdicts(lost)[0].to_json()["found"] is None


def test_nothing_to_judge_is_not_met():
    (found,) = SLO(itl={95: 1.0}).verdicts([])
    assert not found.met and math.isnan(found.found) and found.word == "nothing seen"


@pytest.mark.parametrize("metric", ["tpot", "itl"])
def test_an_answer_of_one_token_keeps_limits_of_what_follows_it(metric: str):
    """Nothing follows it: a load of such answers has all its goodput and meets its SLO (vLLM's goodput takes TPOT as 0 there)."""
    slo = SLO.from_json({metric: {"95": 1e-9}})
    ones = [record(i, tokens=(9.0,)) for i in range(100)]
    (verdict,) = slo.verdicts(ones)
    assert all(map(slo.good, ones)) and verdict.met and verdict.sure and verdict.found == 0
    late = record(101, tokens=(0.0, 1.0))
    (mixed,) = slo.verdicts([*ones, late])
    assert not slo.good(late) and mixed.met is (metric == "tpot")  # one TPOT of 101, and the only gap that there is


@pytest.mark.parametrize("metric", METRICS)
def test_an_answer_without_a_token_exceeds_every_limit(metric: str):
    slo = SLO.from_json({metric: {"50": 100.0}})
    empty = [record(i, reason="stop") for i in range(3)]
    (verdict,) = slo.verdicts(empty)
    assert not any(map(slo.good, empty)) and not verdict.met and verdict.found == math.inf


@st.composite
def answers(draw: st.DrawFn) -> RequestRecord:
    gaps = draw(st.lists(st.sampled_from([0.1, 0.5, 2.0]), max_size=4))
    tokens = tuple(itertools.accumulate(gaps))
    more = draw(st.integers(0, 3)) if tokens else 0  # several tokens in a chunk
    return record(0, 0.0, tokens, output=len(tokens) + more, reason=draw(st.sampled_from(["length", "stop", "failed"])))


@given(st.lists(answers(), min_size=1, max_size=12), st.sampled_from(METRICS), st.sampled_from([50, 90, 99]))
def test_goodput_and_verdict_are_one_rule(records: list[RequestRecord], metric: str, q: int):
    """Where every request is good the limit is met, and where none is it is missed."""
    slo = SLO.from_json({metric: {str(q): 0.6}})
    (verdict,) = slo.verdicts(records)
    good = [slo.good(each) for each in records]
    assert verdict.met or not all(good)
    assert any(good) or not verdict.met


def test_percentiles_of_many_digits_keep_them():
    slo = SLO.parse(["ttft-p99.99991=1s,ttft-p99.99992=2s"])
    assert SLO.from_json(slo.to_json()) == slo and slo.verdicts([])[0].name == "TTFT P99.99991"
