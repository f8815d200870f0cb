"""The main job's page. Oracles: times, rows and pages by hand; the predictor asked for an engine's plan; a run's tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

from costmodel.hardware.ceilings import Ceilings
from jaxserve.engine.build import silent
from jaxserve.engine.request_output import CompletionOutput, RequestOutput
from jaxserve.engine.sequence import Finish
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run as Load
from jaxserve.main_job import job
from jaxserve.main_job.outcome import DecodeResult
from jaxserve.main_job.outcome import Run as Batch
from jaxserve.main_job.page import run_of, write_page
from jaxserve.main_job.settings import DecodeConfig
from jaxserve.predict.analytical import Analytical
from jaxserve.predict.step_costs import StepCosts, name_of
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.step_record import StepRecord
from models.files.provenance import Provenance
from models.text.tokenizer import byte_tokenizer

LIMITS = Ceilings("here", "2026-01-31", 0.0, 20e9, "made up", 100e9, "made up", 200e9, "made up")
LADDER = Buckets((1, 2), (10,), (2, 4), 4)
PREDICTOR = Analytical("tiny", LIMITS.chip(), dtype="float32", ladder=LADDER)


# Prompts of 6 and 3 tokens, in chunks of 4; answers of 3 and 2 tokens.
PLANS = (
    Plan(0, ids=(0, 1), starts=(0, 0), counts=(6, 3), draws=(1, 1)),
    Plan(0, ids=(0, 1), starts=(6, 3), counts=(1, 1), draws=(1, 1)),
    Plan(0, ids=(0,), starts=(7,), counts=(1,), draws=(1,)),
)


def step(number: int, plan: Plan, measured: float, at: float) -> StepRecord:
    runs = dispatch(plan, LADDER)
    prompts = number == 0
    return StepRecord(
        step=number,
        worker=0,
        digest="",
        programs=tuple(name_of(run) for run in runs),
        rows=len(plan.ids),
        padded=0,
        prefill=sum(plan.counts) if prompts else 0,
        decode=0 if prompts else len(plan.ids),
        draft=0,
        drawn=len(plan.ids),
        pages=5,
        predicted=PREDICTOR(plan),
        measured=measured,
        host=0.25,
        at=at,
    )


def batch() -> Batch:
    rows, records = [], []
    for id, (prompt, tokens, times, reason) in enumerate(
        ((6, (5, 5, 5), (1.25, 2.0, 2.75), "length"), (3, (5, 9), (1.25, 2.0), "stop"))
    ):
        ended = Finish(reason)  # type: ignore[arg-type]
        rows.append(RequestOutput([1] * prompt, (1,) * prompt, (CompletionOutput("", tokens, ended, (), times),)))
        when: Any = {"intended": 0.01, "sent": 0.01, "submitted": 0.01, "ready": 0.01, "started": 0.25, "prefilled": times[0]}
        records.append(
            RequestRecord(id=id, **when, tokens=times, end=times[-1], prompt=prompt, output=len(tokens), reason=reason)
        )
    costs = StepCosts(PREDICTOR, LIMITS.chip(), "float32")
    for plan in PLANS:
        costs.add(dispatch(plan, LADDER))
    steps = [step(i, plan, 0.5, at) for i, (plan, at) in enumerate(zip(PLANS, (1.25, 2.0, 2.75), strict=True))]
    return Batch(2, rows, [], 1.0, 1.0, records, steps, costs)


def outcome(*batches: Batch) -> DecodeResult:
    names = ("model", "machine", "date", "jax", "kv_dtype", "context", "distinct_prompts")
    facts = {**dict.fromkeys(names, "x"), "dtype": "float32", "page_size": 4}
    return DecodeResult(facts, Provenance(), LIMITS, 5, [], list(batches), byte_tokenizer(512))


def test_a_batch_is_a_closed_load_whose_rows_were_due_at_the_start():
    run = run_of(batch(), outcome(batch()))
    assert [(record.intended, record.ttft) for record in run.records] == [(0.0, 1.25), (0.0, 1.25)]
    assert (run.duration, run.witness, run.pool) == (2.75, "measured", (5, 4, "paged"))
    assert [(each.prefill, each.decode, each.drawn) for each in run.steps] == [(9, 0, 2), (0, 2, 2), (0, 1, 1)]
    assert not run.little.comparable
    assert Load.from_json(json.loads(json.dumps(run.to_json()))) == run


def test_what_its_steps_should_cost():
    """The roofs of each program, times the chip's bandwidth and peak."""
    costs = run_of(batch(), outcome(batch())).settings["programs"]["steps"]
    assert [entry["programs"] for entry in costs] == [
        ["prefill 2x4"] * len(dispatch(PLANS[0], LADDER)),
        ["decode 2"],
        ["decode 1"],
    ]
    (last,) = dispatch(PLANS[2], LADDER)
    roofs = PREDICTOR.roofs(PREDICTOR.run_load(last))
    assert costs[2]["bytes"] == pytest.approx(roofs.memory * 20e9) and costs[2]["flops"] == pytest.approx(roofs.compute * 100e9)


def test_batches_of_the_same_size_have_names_of_their_own(tmp_path: Path):
    path = tmp_path / "out.html"
    write_page(path, outcome(batch(), batch()), "python -m jaxserve.decode --batch 2,2")
    text = path.read_text(encoding="utf-8")
    assert "batch 2 (1)" in text and "batch 2 (2)" in text and "A closed batch: all prompts are there at the start" in text
    assert "roofline-0" in text and "roofline-missing" not in text


@pytest.mark.slow
def test_a_real_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Every token of every row has a time, in order, and no step ends before the one before it."""
    monkeypatch.setattr(job, "ceilings", lambda: LIMITS)
    monkeypatch.setattr(job, "choose_dtype", lambda asked, rows: (asked, "as asked"))
    settings = DecodeConfig(model="random:tiny", batches=(3, 1), dtype="float32", max_new_tokens=5, page_size=4)
    found = job.run(settings, silent)
    for batch in found.runs:
        run = run_of(batch, found)
        assert [len(record.tokens) for record in run.records] == [len(row.answers[0].tokens) for row in batch.rows]
        assert all(list(record.tokens) == sorted(record.tokens) and record.started >= 0 for record in run.records)
        assert all(after.at >= before.at for before, after in zip(run.steps, run.steps[1:], strict=False))
        assert sum(each.drawn for each in run.steps) == sum(len(row.answers[0].tokens) for row in batch.rows)
        assert sum(each.prefill for each in run.steps) == sum(len(row.prompt_tokens) for row in batch.rows)
        assert all(each.predicted and each.predicted > 0 for each in run.steps)
    write_page(tmp_path / "out.html", found, "")
    assert "predicted" in (tmp_path / "out.html").read_text(encoding="utf-8")
