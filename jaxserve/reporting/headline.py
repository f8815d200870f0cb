"""The figures that a reader wants first: what became of the requests and how full the engine was, and how long clients waited."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jaxserve.load.metrics import CHUNKED
from jaxserve.load.quantiles import PERCENTS, Quantiles
from jaxserve.load.recorder import ANSWERED
from jaxserve.load.result import Run
from jaxserve.reporting.figure import number

FLAG = "†"  # too few values
LATENCIES = (
    ("TTFT", "ttft"),
    ("ITL", "itl"),
    ("TPOT", "tpot"),
    ("E2E", "e2e"),
    ("queue time", "queue"),
    ("client delay", "client_delay"),
)
NOTES = "Small ranges are 95 % intervals of the percentile, from order statistics; they take values as independent."
LOST = (
    "The SLO counts a request without an answer as above every limit, so its percentiles may be higher than those of answers."
)
FEW = f"{FLAG} too few values for this percentile: it is hardly more than the largest that happened to be seen."


class Cell(NamedTuple):
    """A figure, and what stands small beneath it."""

    value: str
    beside: str = ""


class Row(NamedTuple):
    """Figures under one name; `first` begins a group."""

    name: str
    cells: tuple[Cell, ...]
    first: bool = False


def outcome(runs: Mapping[str, Run]) -> tuple[Row, ...]:
    """What became of the requests, the SLO and the steps, a cell a run."""

    def row(name: str, cell: Callable[[Run], Cell], first: bool = False) -> Row:
        return Row(name, tuple(map(cell, runs.values())), first)

    limits = dict.fromkeys(verdict.name for run in runs.values() for verdict in run.summary.verdicts)
    rows = [
        row("requests answered", lambda run: Cell(f"{run.summary.answered:,} of {run.summary.requests:,}", _others(run))),
        row("answered requests/s", lambda run: Cell(number(run.summary.requests_per_s), f"over {run.summary.duration:.4g} s")),
        row("answer tokens/s", lambda run: Cell(number(run.summary.tokens_per_s), _tokens(run))),
        row("prompt tokens", lambda run: Cell(f"{run.summary.prompt_tokens:,}", _cached(run))),
    ]
    if limits:
        rows.append(row("goodput, requests/s", lambda run: Cell(number(run.summary.goodput)), True))
        rows += [row(f"SLO: {name}", _verdict(name)) for name in limits]
    if any(run.steps for run in runs.values()):
        rows += [
            row("steps of the engine", lambda run: Cell(f"{len(run.steps):,}" if run.steps else "-"), True),
            row("live rows a step, mean", lambda run: Cell(number(_mean([step.rows for step in run.steps])))),
            row("padding, share of rows", lambda run: Cell(_padded(run))),
            row("KV pages in use, most", lambda run: Cell(_pages(run))),
            row(
                "preemptions", lambda run: Cell(f"{sum(record.preemptions for record in run.records):,}" if run.steps else "-")
            ),
        ]
    return tuple(rows)


def waits(runs: Mapping[str, Run]) -> tuple[Row, ...]:
    """Each kind of latency, a row a run: n, mean and percentiles, ms. With several runs the first cell is the run's name."""
    rows = []
    for title, field in LATENCIES:
        seen = {name: getattr(run.summary, field) for name, run in runs.items()}
        if any(quantiles.most > 0 for quantiles in seen.values()):  # a simulation has no client that could be late
            for number, (name, quantiles) in enumerate(seen.items()):
                who = (Cell(name),) if len(runs) > 1 else ()
                rows.append(Row("" if number else title, (*who, *_figures(quantiles)), not number))
    return tuple(rows)


def notes(runs: Mapping[str, Run]) -> tuple[str, ...]:
    """What stands beneath the tables."""
    seen = [getattr(run.summary, field) for run in runs.values() for _, field in LATENCIES]
    lost = any(run.summary.verdicts and run.summary.answered < run.summary.requests for run in runs.values())
    few = any(quantiles.few for quantiles in seen if quantiles.n)
    chunked = sum(run.summary.by_chunks for run in runs.values())
    said = f"Of tokens/s and TPOT: {CHUNKED.format(chunked)}."
    return (NOTES, *((FEW,) if few else ()), *((LOST,) if lost else ()), *((said,) if chunked else ()))


def _figures(quantiles: Quantiles) -> Iterator[Cell]:
    yield Cell(f"{quantiles.n:,}")
    yield Cell(_ms(quantiles.mean))
    for percent in PERCENTS:
        bounds = quantiles.intervals[percent]
        flag = FLAG if quantiles.n and percent in quantiles.few else ""
        yield Cell(_ms(quantiles.at(percent)) + flag, f"{_ms(bounds[0])} to {_ms(bounds[1])}" if bounds else "")


def _ms(seconds: float) -> str:
    return number(seconds * 1e3)


def _others(run: Run) -> str:
    """What became of requests that were not answered."""
    return ", ".join(f"{count:,} {reason}" for reason, count in run.summary.counts.items() if reason not in ANSWERED)


def _tokens(run: Run) -> str:
    chunked = f", {run.summary.by_chunks:,} answers by chunks" if run.summary.by_chunks else ""
    return f"{run.summary.output_tokens:,} tokens{chunked}"


def _cached(run: Run) -> str:
    whole, cached = run.summary.prompt_tokens, run.summary.cached_tokens
    return f"of {cached / whole:.1%} the KV was there" if cached else ""


def _verdict(name: str) -> Callable[[Run], Cell]:
    def cell(run: Run) -> Cell:
        found = next((verdict for verdict in run.summary.verdicts if verdict.name == name), None)
        return Cell("-") if found is None else Cell(found.word, f"{_ms(found.found)}, limit {_ms(found.limit)} ms")

    return cell


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else math.nan


def _padded(run: Run) -> str:
    rows, padded = sum(step.rows for step in run.steps), sum(step.padded for step in run.steps)
    return f"{padded / (rows + padded):.1%}" if rows + padded else "-"


def _pages(run: Run) -> str:
    most = max((step.pages for step in run.steps), default=None)
    if most is None:
        return "-"
    return f"{most:,} of {run.pool.units:,}" if run.pool else f"{most:,}"
