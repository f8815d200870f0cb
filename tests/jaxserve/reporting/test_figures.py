"""What figures hold and say. Oracle: runs so small that every number is worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Pool, Run
from jaxserve.load.slo import SLO
from jaxserve.reporting.first_token import first_tokens, groups
from jaxserve.reporting.headline import notes, outcome, waits
from jaxserve.reporting.latency import latencies
from jaxserve.reporting.prediction import predicted
from jaxserve.reporting.reached import reached
from jaxserve.reporting.roofline import rooflines
from jaxserve.reporting.timeline import concurrency, pages, timeline
from jaxserve.scheduling.step_record import StepRecord
from tests.jaxserve.reporting.made import CHIP


def record(id: int, due: float, *tokens: float, **more: Any) -> RequestRecord:
    """Sent 1 ms late, submitted 2 ms later, ready at once, started 4 ms later, prefilled 2 ms before its first token."""
    stages = (due + 0.001, due + 0.003, due + 0.003, due + 0.007, tokens[0] - 0.002 if tokens else math.nan)
    return RequestRecord(id, due, *stages, tokens, more.pop("end", tokens[-1] if tokens else due), 10, len(tokens), **more)


def step(number: int, at: float, measured: float, **more: Any) -> StepRecord:
    values: dict[str, Any] = {
        "worker": 0, "digest": "", "programs": ("decode 4",), "rows": 3, "padded": 1, "prefill": 0, "decode": 3, "draft": 0, "drawn": 3,
        "pages": 5, "predicted": None, "host": 0.0,
    }  # fmt: skip
    return StepRecord(step=number, at=at, measured=measured, **{**values, **more})


def run(records: list[RequestRecord], **more: Any) -> Run:
    return Run.of(records, **{"witness": "measured", "settings": {}, **more})


def test_distributions_are_of_answered_requests_in_ms():
    """Two answers and one that failed: TTFT 100 and 300 ms, gaps of 10, 20 and 30 ms, TPOT 15 and 30 ms, E2E 130 and 330 ms."""
    mine = run(
        [record(0, 0.0, 0.1, 0.11, 0.13), record(1, 1.0, 1.3, 1.33), record(2, 2.0, 2.5, reason="failed")],
        slo=SLO(ttft={95: 0.25}),
    )
    found = {figure.id: figure.chart.data for figure in latencies({"a": mine}).figures if figure.chart}
    expected = {"cdf-ttft": [100, 300], "cdf-itl": [10, 20, 30], "cdf-tpot": [15, 30], "cdf-e2e": [130, 330]}
    assert {id: pytest.approx(list(traces[0].x)) for id, traces in found.items()} == expected
    assert list(found["cdf-itl"][0].y) == pytest.approx([100 / 3, 200 / 3, 100])
    limit = found["cdf-ttft"][1]
    assert list(limit.x) == [250, 250] and "P95" in limit.name and "250" in limit.name


def test_what_nobody_has_is_said():
    """Answers of one token have no gap."""
    section = latencies({"a": run([record(0, 0.0, 0.1)])})
    itl = next(figure for figure in section.figures if figure.id == "cdf-itl")
    assert itl.chart is None and "a: no request has one." in itl.notes


def test_tokens_that_come_together_are_told():
    """Gaps of 0 have no place on a logarithmic axis: they stand at the least of the others."""
    section = latencies({"a": run([record(0, 0.0, 0.1, 0.1, 0.12)])})
    itl = next(figure for figure in section.figures if figure.id == "cdf-itl")
    assert list(itl.chart.data[0].x) == pytest.approx([20, 20]) and "1 of 2 are 0" in itl.notes[0]


def test_groups_sum_to_their_ttft():
    """TTFT of 1 to 10 s: the fastest half means 3 s, the next four 7.5 s, the last one 10 s, and no one is left for a group of its own."""
    found = groups([record(i, 0.0, float(i + 1)) for i in range(10)][::-1])
    assert [(group.name, group.requests) for group in found] == [
        ("all", 10),
        ("fastest half", 5),
        ("P50 to P90", 4),
        ("P90 to P99", 1),
    ]
    assert [group.ttft for group in found] == pytest.approx([5.5, 3.0, 7.5, 10.0])
    assert found[1].parts == pytest.approx(
        {"client delay": 0.001, "preprocessing": 0.002, "aggregation": 0, "queue": 0.004, "prefill": 2.991, "emission": 0.002}
    )


def test_stages_that_nobody_tells_apart_stand_as_one():
    known = record(0, 0.0, 0.5)._replace(submitted=math.nan, ready=math.nan, started=math.nan, prefilled=math.nan)
    (figure,) = first_tokens({"a": run([known])}).figures
    assert [trace.name for trace in figure.chart.data] == [
        "client delay",
        "preprocessing + aggregation +<br>queue + prefill + emission",
    ]
    assert sum(trace.x[-1] for trace in figure.chart.data) == pytest.approx(500) and "doesn't tell apart" in "".join(
        figure.notes
    )


def test_concurrency_is_swept():
    """Two requests, from 0 to 2 and from 1 to 3 s. Up to the last arrival one is open: L = 1; 1 arrival/s times 2 s = 2."""
    figure = concurrency({"a": run([record(0, 0.0, 2.0), record(1, 1.0, 3.0)])})
    curve, mean = figure.chart.data
    assert list(zip(curve.x, curve.y, strict=True)) == [(0, 1), (1, 2), (2, 1), (3, 0)] and curve.line.shape == "hv"
    assert list(mean.y) == [1, 1] and "L = 1; λW = 1/s × 2 s = 2: may not be compared" in figure.notes[0]


def test_steps_are_drawn_or_their_absence_is_told():
    mine = run(
        [record(0, 0.0, 2.0)], steps=(step(0, 1.0, 0.5), step(1, 2.0, 0.5, pages=7, padded=0, prefill=20)), pool=Pool(8, 16)
    )
    figures = {figure.id: figure for figure in timeline({"a": mine}).figures}
    used, pool = figures["pages"].chart.data
    assert list(used.y) == [5, 7] and list(pool.y) == [8, 8]
    live, padded = figures["rows-0"].chart.data
    assert (
        list(live.y) == [3, 3] and list(padded.y) == [1, 0] and "14.3% of all rows were padding" in figures["rows-0"].notes[0]
    )
    assert [trace.name for trace in figures["tokens-0"].chart.data] == ["decode", "prefill"]  # and no draft, for there was none
    bare = {figure.id: figure for figure in timeline({"b": run([record(0, 0.0, 2.0)])}).figures}
    assert all(bare[id].chart is None and "no records of steps" in bare[id].notes[0] for id in ("pages", "rows-0", "tokens-0"))


def test_each_worker_has_a_curve_and_its_part_of_the_pool():
    mine = run([record(0, 0.0, 2.0)], steps=(step(0, 1.0, 0.5), step(1, 2.0, 0.5, worker=1)), pool=Pool(8, 16))
    first, second, pool = pages({"a": mine}).chart.data
    assert (first.name, second.name) == ("a, worker 0", "a, worker 1") and list(pool.y) == [4, 4]


def test_predictions_stand_against_the_clock():
    """Ratios 2, 2 and 4: the median is 2, and |ln 2| and |ln 4| are factors of 2 and 4."""
    steps = (
        step(0, 1.0, 0.02, predicted=0.01),
        step(1, 2.0, 0.04, predicted=0.02),
        step(2, 3.0, 0.04, predicted=0.01),
        step(3, 4.0, 1.0),
    )
    figure = predicted({"a": run([record(0, 0.0, 2.0)], steps=steps)})
    drawn, equal = figure.chart.data
    assert (
        list(drawn.x) == pytest.approx([10, 20, 10])
        and list(drawn.y) == pytest.approx([20, 40, 40])
        and list(equal.x) == list(equal.y)
    )
    assert "is 2 in the median" in figure.notes[0] and "median 2, P90 4" in figure.notes[0] and "3 steps" in figure.notes[0]


def test_a_roofline_by_hand():
    """Two steps of 0.1 and 0.3 s that move 2 GB and compute 4 GFLOP each: 10 GB/s and 20 GFLOP/s, at 2 FLOP/B."""
    entry = {"programs": ["decode 4"], "steps": 2, "bytes": 4e9, "flops": 8e9}
    compiled = [{"program": "decode 4", "width": 8, "flops": 5e9, "bytes": None, "loops": 3}]
    settings = {"programs": {"chip": CHIP, "steps": [entry], "compiled": compiled}}
    mine = run(
        [record(0, 0.0, 2.0)],
        settings=settings,
        steps=(step(0, 1.0, 0.1), step(1, 2.0, 0.3), step(2, 3.0, 0.1, programs=("other",))),
    )
    (point,) = reached({"a": mine})
    assert (point.intensity, point.seconds, point.low, point.high, point.steps) == pytest.approx((2.0, 0.2, 0.1, 0.3, 2))
    assert point.share == pytest.approx(0.8)
    figure, beside = rooflines({"a": mine})
    drawn, roof = figure.chart.data
    assert (drawn.x[0], drawn.y[0]) == pytest.approx((2.0, 20e9))
    assert max(roof.y) == 150e9 and roof.x[1] == pytest.approx(7.5)  # the ridge
    assert beside.table is not None
    assert beside.table.rows[0][3:] == ("80.0%", "200 (100 to 300)", "4", "2,000", "2", "10 (50%)", "20 (13%)", "5+", "-")


def test_a_roofline_that_nobody_can_draw_says_why():
    (figure,) = rooflines({"a": run([record(0, 0.0, 2.0)])})
    assert figure.chart is None and "neither costs nor times" in figure.notes[0]


def test_the_headline_by_hand():
    """TTFT of 100 and 300 ms, of which the limit takes one; 4 tokens in 2.33 s."""
    asked = [record(0, 0.0, 0.1, 0.11), record(1, 2.0, 2.3, 2.33), record(2, 2.0, reason="refused", end=2.1)]
    mine = run(asked, slo=SLO(ttft={50: 0.2}), steps=(step(0, 1.0, 0.5),), pool=Pool(8, 16))
    found = {row.name: row.cells[0] for row in outcome({"a": mine})}
    assert found["requests answered"] == ("2 of 3", "1 refused")
    assert found["answer tokens/s"] == (f"{4 / 2.33:.4g}", "4 tokens")
    assert found["goodput, requests/s"].value == f"{1 / 2.33:.4g}"
    assert found["SLO: TTFT P50"].value.startswith("missed") and found["SLO: TTFT P50"].beside == "300, limit 200 ms"
    assert (found["padding, share of rows"].value, found["KV pages in use, most"].value) == ("25.0%", "5 of 8")
    ttft = next(row for row in waits({"a": mine}) if row.name == "TTFT")
    assert [cell.value for cell in ttft.cells] == ["2", "200", "100†", "300†", "300†", "300†"] and ttft.first
    assert len(notes({"a": mine})) == 3


def test_several_runs_stand_beside_each_other():
    """A cell a run above, a row a run below, and the flag only where values are too few: 6 are enough for P50, and for nothing else."""
    few, more = run([record(0, 0.0, 0.1)]), run([record(i, float(i), i + 0.1 * (i + 1)) for i in range(6)])
    both = {"few": few, "more": more}
    assert [cell.value for cell in outcome(both)[0].cells] == ["1 of 1", "6 of 6"]
    rows = [row for row in waits(both)][:2]
    assert [(row.name, row.cells[0].value) for row in rows] == [("TTFT", "few"), ("", "more")]
    assert [cell.value for cell in rows[1].cells[1:]] == ["6", "350", "300", "600†", "600†", "600†"]
    assert rows[1].cells[3].beside == "100 to 600"


def test_many_runs_look_different():
    """A search for saturation makes a dozen; no two have the same colour and dash."""
    runs = {str(i): run([record(0, 0.0, 0.1 + i)]) for i in range(36)}
    traces = latencies(runs).figures[0].chart.data
    assert len({(trace.line.color, trace.line.dash) for trace in traces}) == 36
