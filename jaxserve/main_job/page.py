"""The page that `--report` of the main job writes: each batch as a run of a load, a closed one whose prompts are all there at the start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxserve.load.record import RequestRecord
from jaxserve.load.result import Pool, Run
from jaxserve.main_job.outcome import DecodeResult
from jaxserve.main_job.outcome import Run as Batch
from jaxserve.main_job.rows import Row, StepRecord
from jaxserve.predict.step_costs import StepCosts
from jaxserve.programs.dispatch import Piece
from jaxserve.programs.dispatch import Run as Program
from jaxserve.reporting.report import write_report
from jaxserve.scheduling.step_record import StepRecord as Step

CLOSED = (
    "A closed batch: all prompts are there at the start, and nobody comes later. TTFT is a row's place in the order of the prefill, "
    "longest prompts first, and no latency of a service; python -m jaxserve.load measures that."
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
    """One batch. Times count from the beginning of its first step, when all of its rows were due."""
    chip = outcome.limits.chip()
    costs = StepCosts(outcome.predictor, chip, outcome.facts["dtype"])
    for step in batch.steps:
        costs.add([program_of(step)])
    records = records_of(batch.rows, batch.steps)
    settings: dict[str, Any] = {
        "load": "a closed batch",
        "batch": batch.batch,
        **{name: outcome.facts[name] for name in SHOWN},
        "programs": costs.to_json(outcome.programs),
    }
    return Run.of(
        records,
        witness="measured",
        settings=settings,
        warm=0,
        steady=False,
        steps=tuple(steps_of(batch, records, outcome)),
        pool=Pool(outcome.pages, outcome.facts["page_size"]),
        programs=tuple(program.bucket.name for program in outcome.programs),
    )


def program_of(step: StepRecord) -> Program:
    """What a step ran, as the cost model prices it: rows of a decode program, or pieces of prompts."""
    starts = tuple(context - count for context, count in zip(step.contexts, step.counts, strict=True))
    bucket = step.program.bucket
    if decodes(step):
        return Program(bucket, range(step.live), starts, None, ())
    pieces = [Piece(start, count, row) for row, (start, count) in enumerate(zip(starts, step.counts, strict=True))]
    return Program(bucket, (), (), None, pieces)


def decodes(step: StepRecord) -> bool:
    """Whether it is a step of the decode phase, whose programs take one token of a row; those of prefill take at least two."""
    return step.program.bucket.shape[0][1] == 1


def records_of(rows: Sequence[Row], steps: Sequence[StepRecord]) -> list[RequestRecord]:
    """A record for each row, with the time of every token: a step whose end a row has run its whole prompt by draws one for it."""
    started, tokens = [math.nan] * len(rows), [list[float]() for _ in rows]
    for step in steps:
        for number, context in zip(step.rows, step.contexts, strict=True):
            if math.isnan(started[number]):
                started[number] = step.at - step.seconds
            if context >= len(rows[number].prompt):
                tokens[number].append(step.at)
    return [
        RequestRecord(
            id=number,
            intended=0.0,
            sent=0.0,
            submitted=0.0,
            ready=0.0,
            started=started[number],
            prefilled=tokens[number][0],
            tokens=tuple(tokens[number]),
            end=tokens[number][-1],
            prompt=len(row.prompt),
            output=len(row.output),
            reason=row.reason,
        )
        for number, row in enumerate(rows)
    ]


def steps_of(batch: Batch, records: Sequence[RequestRecord], outcome: DecodeResult) -> list[Step]:
    """Its steps in the form of an engine's. Pages are handed out at the start and come back when their row is over."""
    found = []
    for number, step in enumerate(batch.steps):
        predictor, decode = outcome.predictor, decodes(step)
        found.append(
            Step(
                step=number,
                worker=0,
                digest="",
                programs=(step.program.bucket.name,),
                rows=step.live,
                padded=sum(rows for rows, _ in step.program.bucket.shape) - step.live,
                prefill=0 if decode else step.tokens,
                decode=step.tokens if decode else 0,
                draft=0,
                drawn=sum(c >= len(batch.rows[row].prompt) for row, c in zip(step.rows, step.contexts, strict=True)),
                pages=sum(len(row.pages) for row, record in zip(batch.rows, records, strict=True) if record.end >= step.at),
                predicted=predictor.seconds(predictor.run_load(program_of(step))),
                measured=step.seconds,
                host=step.host_seconds,
                at=step.at,
            )
        )
    return found
