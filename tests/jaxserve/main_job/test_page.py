"""The main job's page. Oracles: times, rows and pages by hand; the predictor asked for an engine's plan; a run's tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

from costmodel.hardware.ceilings import Ceilings
from jaxserve.engine.build import silent
from jaxserve.load.result import Run as Load
from jaxserve.main_job import job
from jaxserve.main_job.outcome import DecodeResult
from jaxserve.main_job.outcome import Run as Batch
from jaxserve.main_job.page import program_of, records_of, run_of, write_page
from jaxserve.main_job.rows import Row, StepRecord
from jaxserve.main_job.settings import DecodeConfig
from jaxserve.predict.analytical import Analytical
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.executable import Executable
from jaxserve.programs.program_set import Program
from jaxserve.scheduling.plan import Plan
from models.files.provenance import Provenance
from models.text.tokenizer import byte_tokenizer
from tests.jaxserve.served import GREEDY

LIMITS = Ceilings("here", "2026-01-31", 0.0, 20e9, "made up", 100e9, "made up", 200e9, "made up")
LADDER = Buckets((1, 2), (10,), (2, 4), 4)
PREDICTOR = Analytical("tiny", LIMITS.chip(), dtype="float32", ladder=LADDER)
PREFILL, DECODE, ONE = ((2, 4),), ((2, 1),), ((1, 1),)


def step(shape: Any, rows: Iterable[tuple[int, int, int]], seconds: float, at: float) -> StepRecord:
    """rows: (number, tokens in the cache after the step, tokens that it ran)."""
    program = Program(Bucket(shape, 10), None, None, Executable(None, None, 0, 1.0, False), [])  # type: ignore[arg-type]
    numbers, contexts, counts = zip(*rows, strict=True)
    return StepRecord(program, numbers, contexts, counts, seconds, 0.25, at)


# Prompts of 6 and 3 tokens, in chunks of 4; answers of 3 and 2 tokens.
STEPS = [
    step(PREFILL, [(0, 4, 4), (1, 3, 3)], 1.0, 1.25),
    step(PREFILL, [(0, 6, 2)], 1.0, 2.75),
    step(DECODE, [(0, 7, 1), (1, 4, 1)], 0.5, 3.5),
    step(ONE, [(0, 8, 1)], 0.5, 4.5),
]


def batch() -> Batch:
    rows = [
        Row(list(range(prompt)), limit, GREEDY, frozenset({9}), np.arange(pages, dtype=np.int32), output=output)
        for prompt, limit, pages, output in ((6, 3, 2, [5, 5, 5]), (3, 8, 3, [5, 9]))
    ]
    return Batch(2, rows, STEPS, [], 1.0, 1.0)


def outcome(*batches: Batch) -> DecodeResult:
    names = ("model", "machine", "date", "jax", "kv_dtype", "context", "distinct_prompts")
    facts = {**dict.fromkeys(names, "x"), "dtype": "float32", "page_size": 4}
    return DecodeResult(facts, Provenance(), LIMITS, PREDICTOR, 5, [], list(batches), byte_tokenizer(512))


def test_rows_by_hand():
    """Each began with the first step that ran its prompt, and had its first token from the step that ran the last of it."""
    long, short = records_of(batch().rows, STEPS)
    assert (long.started, long.prefilled, long.tokens, long.end) == (0.25, 2.75, (2.75, 3.5, 4.5), 4.5)
    assert (short.started, short.prefilled, short.tokens, short.end) == (0.25, 1.25, (1.25, 3.5), 3.5)
    assert (long.reason, short.reason) == ("length", "stop") and (long.prompt, long.output, short.output) == (6, 3, 2)
    assert (long.ttft, long.itl, short.tpot) == (2.75, (0.75, 1.0), 2.25)


def test_steps_by_hand():
    """Two rows of the second prefill program's one is padding; the pages of a row come back with its last token."""
    run = run_of(batch(), outcome(batch()))
    assert [each.programs for each in run.steps] == [("prefill 2x4",)] * 2 + [("decode 2",), ("decode 1",)]
    assert [(each.rows, each.padded) for each in run.steps] == [(2, 0), (1, 1), (2, 0), (1, 0)]
    assert [(each.prefill, each.decode, each.drawn) for each in run.steps] == [(7, 0, 1), (2, 0, 1), (0, 2, 2), (0, 1, 1)]
    assert [each.pages for each in run.steps] == [5, 5, 5, 2]
    assert [(each.measured, each.host, each.at) for each in run.steps[:2]] == [(1.0, 0.25, 1.25), (1.0, 0.25, 2.75)]
    assert (run.duration, run.witness, run.pool) == (4.5, "measured", (5, 4, "paged"))
    assert not run.little.comparable
    assert Load.from_json(json.loads(json.dumps(run.to_json()))) == run


def test_a_step_costs_what_an_engines_plan_of_it_does():
    """The same rows as a plan that the ladder finds the programs of, padding included."""
    plans = (
        Plan(0, ids=(0, 1), starts=(0, 0), counts=(4, 3), draws=(0, 1)),
        Plan(0, ids=(0,), starts=(4,), counts=(2,), draws=(1,)),
        Plan(0, ids=(0, 1), starts=(6, 3), counts=(1, 1), draws=(1, 1)),
        Plan(0, ids=(0,), starts=(7,), counts=(1,), draws=(1,)),
    )
    run = run_of(batch(), outcome(batch()))
    assert [each.predicted for each in run.steps] == pytest.approx([PREDICTOR(plan) for plan in plans])
    costs = run.settings["programs"]["steps"]
    assert [(entry["programs"], entry["steps"]) for entry in costs] == [
        (["prefill 2x4"], 2),
        (["decode 2"], 1),
        (["decode 1"], 1),
    ]
    roofs = PREDICTOR.roofs(PREDICTOR.run_load(program_of(STEPS[3])))
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
        assert [len(record.tokens) for record in run.records] == [len(row.output) for row in batch.rows]
        assert all(list(record.tokens) == sorted(record.tokens) and record.started >= 0 for record in run.records)
        assert all(after.at - after.measured >= before.at for before, after in zip(run.steps, run.steps[1:], strict=False))
        assert sum(each.drawn for each in run.steps) == sum(len(row.output) for row in batch.rows)
        assert sum(each.prefill for each in run.steps) == sum(len(row.prompt) for row in batch.rows)
        assert all(each.predicted and each.predicted > 0 for each in run.steps)
    write_page(tmp_path / "out.html", found, "")
    assert "predicted" in (tmp_path / "out.html").read_text(encoding="utf-8")
