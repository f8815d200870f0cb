"""A run in JSON. Oracle: the run itself, and a plain JSON reader that knows no nan."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Pool, Run
from jaxserve.load.slo import SLO
from jaxserve.scheduling.step_record import StepRecord
from models.errors import UserError
from tests.jaxserve.load.records import record, served

STEP = StepRecord(0, 0, "ab", ("decode 2", "prefill 2x8"), 3, 1, 8, 2, 0, 3, 7, None, 0.01, 0.001, 1.5)


def run(records: list[RequestRecord], **fields: Any) -> Run:
    return Run.of(records, **{"witness": "measured", "settings": {"seed": 1}, **fields})


def same(one: Any, other: Any) -> bool:
    """Equal, and nan where the other is."""
    return repr(one) == repr(other)


times = st.floats(0, 1e6) | st.just(math.nan)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.builds(
    record, id=st.integers(0, 99), intended=st.floats(0, 1e6), tokens=st.lists(st.floats(0, 1e6), max_size=4), submitted=times, ready=times,
    started=times, prefilled=times, cached=st.integers(0, 9), error=st.text(max_size=5),
    reason=st.sampled_from(["length", "stop", "failed", "unfinished"]),
), max_size=5), st.integers(0, 2))  # fmt: skip
def test_there_and_back(records: list[RequestRecord], warmup: int):
    one = run(
        records,
        warmup=warmup,
        slo=SLO(ttft={95.0: 0.25}),
        steps=(STEP,),
        pool=Pool(9, 16),
        programs=("decode 2",),
        warm=None,
        complete=False,
        why="Ctrl-C",
        steady=False,
    )
    text = json.dumps(one.to_json(), allow_nan=False)
    assert same(Run.from_json(json.loads(text)), one)


def test_the_warm_up_is_in_no_figure_but_the_open_requests():
    """Ten requests, one a second from 0, 2 s each, of which three warm up: rates count from 2 s to 11 s."""
    one = run([served(i, float(i), 2.0) for i in reversed(range(10))], warmup=3)
    assert (len(one.records), len(one.warmup), one.begin, one.duration) == (7, 3, 2.0, 9.0)
    assert one.summary.requests == 7 and one.summary.requests_per_s == pytest.approx(7 / 9)
    assert (one.little.start, one.little.stop) == (2.0, 9.0)
    assert one.little.concurrency == pytest.approx(2.0)  # at 2 s two are open, of which one is the warm-up's
    assert max(one.little.curve[1]) == 2


def test_what_the_json_says():
    plain = run([served(0, 0.0, 1.0), record(1, 0.5, reason="failed", error="HTTP 500")]).to_json()
    assert plain["witness"] == "measured" and plain["summary"]["counts"] == {"length": 1, "failed": 1}
    assert plain["summary"]["definitions"]["ttft"] and plain["little"]["comparable"] is False
    assert plain["records"][1]["started"] is None and plain["records"][1]["error"] == "HTTP 500"
    assert plain["ttft_parts"][0]["name"] == "client delay"


def test_nothing_was_answered():
    one = run([record(0, 1.0, reason="unfinished", end=math.nan)])
    assert one.duration == 0.0 and math.isnan(one.summary.requests_per_s) and one.parts == ()
    json.dumps(one.to_json(), allow_nan=False)
    assert run([]).to_json()["summary"]["requests"] == 0


@pytest.mark.parametrize("given", [{}, [], None, {"format": 1}, {"format": 99}, "x"])
def test_no_run(given: Any):
    with pytest.raises(UserError, match=r"no run|format"):
        Run.from_json(given)


def test_no_such_witness():
    with pytest.raises(UserError, match="measured or simulated"):
        run([], witness="guessed")
