"""Measured runs that are given to a study. Oracle: runs made up by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.sizing import Demand
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run
from jaxserve.sizing.measured import Measured
from models.errors import UserError
from tests.jaxserve.sizing.studies import FACTS, SHORT, Here


def run_of(path: Path, *, gap: float, rows: int | None = 128, rate: float = 20.0, **fields: Any) -> Path:
    """A measured run of 80 requests of 1,008 and 16 tokens: 100 ms to the first token, then one each `gap` s."""
    records = [
        RequestRecord(i, i / 20, i / 20, i / 20, i / 20, i / 20, i / 20 + 0.1, tokens, tokens[-1], 1008, 16)
        for i in range(80)
        for tokens in [tuple(i / 20 + 0.1 + gap * n for n in range(16))]
    ]
    settings = {"load": f"poisson {rate:g}/s", "arrivals": {"kind": "poisson", "rate": rate}} | ({"rows": rows} if rows else {})
    run = Run.of(records, **{"witness": "measured", "settings": settings, **fields})
    path.write_text(json.dumps(run.to_json()))
    return path


@pytest.mark.parametrize(("gap", "word"), [(0.010, "met"), (0.013, "missed")])
def test_a_measured_run_has_the_last_word(here: Here, tmp_path: Path, gap: float, word: str):
    path = run_of(tmp_path / "run.json", gap=gap)
    found = json.loads(here(*SHORT, "--measured", str(path), "--json"))["candidates"]
    assert [each["verdict"] for each in found] == ["undecided until measured", "measured", "infeasible by capacity"]
    assert found[1]["reason"].startswith("poisson 20/s, 80 requests (run.json): TTFT P95 100.0 ms of 250 ms: met")
    assert f"ITL P95 {gap * 1e3:.1f} ms of 12 ms: {word}" in found[1]["reason"]


def test_a_run_under_another_load_decides_nothing(here: Here, tmp_path: Path):
    path = run_of(tmp_path / "run.json", gap=0.01, rate=5.0)
    shown = here(*SHORT, "--measured", str(path))
    assert "decides nothing here: another rate than 20/s" in shown and ": measured: " not in shown.partition("verdicts")[2]


def test_why_a_run_decides_nothing(tmp_path: Path):
    """A closed loop has no rate; another rate, other prompts, other answers; each by more than 5 %. The same load decides."""
    (run,) = Measured.read(str(run_of(tmp_path / "run.json", gap=0.01)))

    def foreign(rate: float, prompt: int, answer: int, kind: str = "poisson") -> str:
        settings = {**run.run.settings, "arrivals": {"kind": kind, "rate": 20.0}}
        return run._replace(run=dataclasses.replace(run.run, settings=settings)).foreign(
            rate, Demand.of(rate, [(prompt, answer)])
        )

    assert foreign(20, 1008, 16) == foreign(20.9, 1050, 16) == ""
    assert foreign(20, 1008, 16, kind="closed") == "a closed loop, which has no rate of its own"
    assert foreign(22, 1008, 16) == "another rate than 22/s"
    assert foreign(20, 900, 16) == "prompts of 1,008 tokens on average and not 900"
    assert foreign(20, 1008, 32) == "outputs of 16 tokens on average and not 32"
    assert foreign(99, 1008, 16, kind="replay") == "", "a trace's own times"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"model": "random:tiny"}, "decides nothing here: an engine of random:tiny, and the study is of llama-3-8b"),
        (
            {"device": "Some (family 1), 2 cores, cpu, jax 1"},
            "decides nothing here: an engine on Some (family 1), 2 cores, cpu, jax 1",
        ),
        ({"model": "random:llama-3-8b", "device": "NVIDIA H100, gpu, jax 1"}, ""),
    ],
)
def test_a_run_of_something_else_decides_nothing(here: Here, tmp_path: Path, settings: dict[str, Any], why: str):
    """The same load on an engine of another model, or on a processor without an accelerator; over HTTP nobody knows."""
    path = run_of(tmp_path / "run.json", gap=0.01)
    given = json.loads(path.read_text())
    for target in ("engine", "http"):
        path.write_text(json.dumps({**given, "settings": {**given["settings"], "target": target, **settings}}))
        shown = " ".join(here(*SHORT, "--measured", str(path)).split())
        decides = target == "http" or not why
        assert ("128: measured: " in shown) == decides and (why in shown) == (not decides or not why)


def test_a_cap_that_the_server_does_not_tell(here: Here, tmp_path: Path):
    path = run_of(tmp_path / "run.json", gap=0.01, rows=None)
    found = json.loads(here(*SHORT, "--measured", f"64={path}", "--json"))["candidates"]
    assert found[0]["verdict"] == "measured"
    with pytest.raises(UserError, match=r"does not say how many sequences its server ran at once; say it, as 128="):
        here(*FACTS, "--measured", str(path))


def test_bad_files(here: Here, tmp_path: Path):
    (tmp_path / "no.json").write_text("{")
    with pytest.raises(UserError, match=r"no\.json: not valid JSON"):
        here(*FACTS, "--measured", str(tmp_path / "no.json"))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match=r"other\.json: this is no run"):
        here(*FACTS, "--measured", str(tmp_path / "other.json"))
    with pytest.raises(UserError, match="is of a run that was simulated"):
        here(*FACTS, "--measured", str(run_of(tmp_path / "run.json", gap=0.01, witness="simulated")))
