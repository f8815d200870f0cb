"""`--report` of a sizing study and of a search. Oracle: the study's own JSON, which another run of the same simulation gave."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

from costmodel.hardware.chips import find_chip
from costmodel.sizing import Placement
from jaxserve.deployment.step_times import analytical, calibrated
from jaxserve.size import main
from jaxserve.sizing import study
from jaxserve.sizing.page import run_of
from jaxserve.sizing.spec import SizingSpec
from models.errors import UserError
from tests.jaxserve.sizing.studies import FACTS, SHORT, Here


def charts(path: Path) -> Any:
    """What the page draws, by id."""
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', path.read_text(encoding="utf-8"), re.S)
    assert found
    return json.loads(found[1])["charts"]


def asked(**fields: Any) -> SizingSpec:
    """The options of a command, as click gives them."""
    given = main.make_context("size", [*SHORT]).params
    names = {field.name for field in dataclasses.fields(SizingSpec)}
    known = {**{name: value for name, value in given.items() if name in names}, "policy": ("chunked",)}
    return SizingSpec(**{**known, **fields})


def test_the_run_is_that_of_the_table():
    """Every figure of the summary is the trial's, though the run has the requests around it as well; steps fill the run without a gap."""
    asks = asked()
    found = study.study(asks, None, (), lambda what, total: lambda count: None)
    line = found.lines[1]
    run = run_of(asks, found.placement, asks.configuration(128, found.pool), found.traffic, analytical(found.placement))
    assert line.trial is not None
    assert run.summary.to_json() == dataclasses.replace(line.trial.summary, warm=0).to_json()
    assert len(run.records) + len(run.warmup) == 30 and len(run.steps) == line.trial.run.steps
    assert sum(step.drawn for step in run.steps) == 30 * 16 and max(step.pages for step in run.steps) == line.trial.pages
    assert all(step.measured == pytest.approx(step.predicted) for step in run.steps)
    assert sum(entry["steps"] for entry in run.settings["programs"]["steps"]) == len(run.steps)


def test_steps_of_kernels_stand_beside_the_roofline():
    """Calibrated steps take longer than the roofline predicts, and the page compares the two."""
    asks, placement = asked(), Placement(asked().choose().architecture, find_chip("h100"))
    traffic = asks.traffic(asks.choose())
    pool = asks.pool(placement, asks.fit(placement, 64))
    run = run_of(asks, placement, asks.configuration(64, pool), traffic, calibrated(placement, None))
    assert all(step.predicted is not None and step.measured > step.predicted for step in run.steps)


def test_a_study(here: Here, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "out.html"
    here(*SHORT, "--report", str(path), "--json")
    drawn, text = charts(path), path.read_text(encoding="utf-8")
    assert {"chart-cdf-ttft", "chart-pages", "chart-rows-0", "chart-predicted", "chart-roofline-0"} <= set(drawn)
    for words in (
        "cap 128: undecided until measured: it fits",
        "No server ran: simulated, with analytical step times",
        "cap 128, chunked 512",
        "simulated",
    ):
        assert words in text, words


def test_a_search(here: Here, tmp_path: Path):
    """The picture has a point for each configuration that was simulated, at its ITL and rate, and the line of the frontier."""
    path = tmp_path / "out.html"
    options = ("--search", *FACTS[2:], "--answer", "16", "--requests", "20", "--tensor-parallel", "1", "--batch", "16,32")
    found = json.loads(here(*options, "--report", str(path), "--json"))
    traces = charts(path)["chart-frontier-points"]["data"]
    places = {
        (round(x, 6), round(y, 3))
        for trace in traces
        if trace["mode"] == "markers+text"
        for x, y in zip(trace["x"], trace["y"], strict=True)
    }
    ran = [each["flooded"] for each in found["options"] if each["flooded"]]
    assert places == {(round(each["itl"] * 1e3, 6), round(each["tokens_per_s"], 3)) for each in ran} and len(ran) == 4
    (edge,) = [trace for trace in traces if trace["name"] == "frontier"]
    assert len(edge["x"]) == len(found["frontier"])
    assert found["answer"] in path.read_text(encoding="utf-8").replace("&lt;", "<")


def test_nothing_to_show_says_so(here: Here, tmp_path: Path):
    """The table is printed all the same."""
    for options in (
        ("--model", "llama-3-70b", *SHORT),
        ("--search", "--model", "llama-3-70b", *FACTS[2:], "--tensor-parallel", "1"),
    ):
        with pytest.raises(UserError, match="--report: nothing was left to simulate"):
            here(*options, "--report", str(tmp_path / "out.html"))
    assert not (tmp_path / "out.html").exists()


def test_a_bad_path_is_refused_before_the_work(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(study, "study")
    with pytest.raises(UserError, match=r"ends in \.html"):
        here(*SHORT, "--report", str(tmp_path / "out.pdf"))
