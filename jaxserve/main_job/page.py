"""The page that `--report` of the main job writes: each batch as a run of a load, a closed one whose prompts are all there at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxserve.load.result import Pool, Run
from jaxserve.main_job.outcome import DecodeResult
from jaxserve.main_job.outcome import Run as Batch
from jaxserve.reporting.report import write_report

CLOSED = (
    "A closed batch: all prompts are there at the start, and nobody comes later. TTFT is the time of one prefill "
    "of them all, and no latency of a service; python -m jaxserve.load measures that."
)
SHOWN = ("model", "machine", "date", "jax", "dtype", "kv_dtype", "page_size", "context", "distinct_prompts")


def write_page(path: Path, outcome: DecodeResult, command: str) -> None:
    """Write it, the batches side by side.

    Raises:
      UserError: as `write_report`.
    """
    runs = [run_of(batch, outcome) for batch in outcome.runs]
    names = [f"batch {batch.batch}" for batch in outcome.runs]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, start=1)]
    title = f"jaxserve: decoding {outcome.facts['model']} in batches"
    write_report(path, runs, names=names, title=title, command=command, alerts=(CLOSED,))


def run_of(batch: Batch, outcome: DecodeResult) -> Run:
    """One batch. Times count from when all of its rows were submitted, which is when they were due."""
    settings: dict[str, Any] = {
        "load": "a closed batch",
        "batch": batch.batch,
        **{name: outcome.facts[name] for name in SHOWN},
        "programs": batch.costs.to_json(outcome.programs),
    }
    return Run.of(
        [record._replace(intended=0.0, sent=0.0) for record in batch.records],
        witness="measured",
        settings=settings,
        warm=0,
        steady=False,
        steps=tuple(batch.steps),
        pool=Pool(outcome.pages, outcome.facts["page_size"]),
        programs=tuple(program.bucket.name for program in outcome.programs),
    )
