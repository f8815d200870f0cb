"""What a run looked like over its time: requests in the system with Little's check, pages in use, how full steps were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxserve.load.little import Little
from jaxserve.load.result import Run
from jaxserve.reporting.figure import Figure, Section, blank, line, reference
from jaxserve.reporting.thin import Bins, binned, extremes

TIME = "time since the start of the run, s"
PARTS = ("#2f7ed8", "#f0b46a", "#7a4fa0")  # of a bar, as different in grey as in colour
NO_STEPS = "it has no records of steps, which an engine in this process and a simulation give, but no server elsewhere"

ROWS = (
    "How full batches were. Padding is rows that a compiled program runs without work: much of it asks for other programs (python -m "
    "jaxserve.buckets). Few live rows ask for more load, or for a policy that lets requests in sooner."
)
TOKENS = (
    "What steps were spent on. One with many prompt tokens takes long, and everyone who decodes beside it waits: those are the long gaps "
    "of ITL. A policy with a token budget (chunked) cuts the peaks off."
)


def timeline(runs: Mapping[str, Run]) -> Section:
    """A figure of all runs for requests and for pages; two for each run about its steps."""
    return Section("timeline", "The run over its time", (concurrency(runs), pages(runs), *occupancy(runs)))


def concurrency(runs: Mapping[str, Run]) -> Figure:
    """Requests in the system, and both sides of Little's law."""
    chart, notes = blank(TIME, "requests in the system"), []
    for number, (name, run) in enumerate(runs.items()):
        little = run.little
        times, counts = little.curve
        if not times:
            notes.append(f"{name}: no request came in.")
            continue
        curve = extremes(times, counts)
        line(chart, curve.x, curve.y, name, number, line={"shape": "hv"})
        if little.stop > little.start:
            mean = f"mean of {name}"
            reference(chart, [little.start, little.stop], [little.concurrency] * 2, mean, dash="dot", showlegend=False)
        notes.append(_law(name, little))
        if curve.thinned:
            notes.append(f"{name}: {len(curve.x):,} points of {curve.whole:,} are drawn, the extremes among them.")
    look = (
        "From when each request was due until it was over, those of a warm-up included; dotted, the mean. A curve that keeps rising is a "
        "server that can't keep up: its latencies say more of the run's length than of the server. Little's law, L = λW, checks the books "
        "at this boundary."
    )
    return Figure("concurrency", "Requests in the system", look, witnesses(runs), chart if chart.data else None, tuple(notes))


def pages(runs: Mapping[str, Run]) -> Figure:
    """KV pages in use after each step, a curve for each worker."""
    chart, notes, number = blank(TIME, "KV pages in use"), [], 0
    limits: dict[int, list[str]] = {}
    for name, run in runs.items():
        if not run.steps:
            notes.append(f"{name}: {NO_STEPS}.")
            continue
        workers = sorted({step.worker for step in run.steps})
        for worker in workers:
            mine = [step for step in run.steps if step.worker == worker]
            title = name if len(workers) == 1 else f"{name}, worker {worker}"
            curve = extremes([step.at for step in mine], [step.pages for step in mine])
            line(chart, curve.x, curve.y, title, number, line={"shape": "hv"})
            number += 1
            if curve.thinned:
                notes.append(f"{title}: {len(curve.x):,} steps of {curve.whole:,} are drawn, the extremes among them.")
        if run.pool:
            limits.setdefault(run.pool.units // len(workers), []).append(name)
            notes.append(f"{name}: {run.pool.kind} KV, {run.pool.units:,} units of {run.pool.unit} tokens in all.")
    last = max((step.at for run in runs.values() for step in run.steps), default=0.0)
    for total, names in limits.items():
        reference(chart, [0, last], [total] * 2, f"pool of {', '.join(names)}: {total:,}")
    look = (
        "Pages (slots where KV is contiguous) that hold KV, those kept for shared prefixes among them. At the pool's limit requests wait "
        "for memory or lose it again, however few rows run; far below it the pool is larger than this load needs."
    )
    return Figure("pages", "KV memory in use", look, witnesses(runs), chart if chart.data else None, tuple(notes))


def occupancy(runs: Mapping[str, Run]) -> list[Figure]:
    """For each run the rows of its steps, live and padded, and its tokens by kind. What to look for is said of the first."""
    return [
        figure
        for number, (name, run) in enumerate(runs.items())
        for figure in (_rows(number, name, run), _tokens(number, name, run))
    ]


def witnesses(runs: Mapping[str, Run]) -> str:
    """Of several runs."""
    return " and ".join(dict.fromkeys(run.witness for run in runs.values()))


def _law(name: str, little: Little) -> str:
    sides = f"L = {little.concurrency:.4g}; λW = {little.rate:.4g}/s × {little.residence:.4g} s = {little.product:.4g}"
    window = f"from {little.start:.4g} to {little.stop:.4g} s"
    return f"Little's law, {name}, {window}: {sides}: {little.verdict}."


def _rows(number: int, name: str, run: Run) -> Figure:
    id, title = f"rows-{number}", f"Rows of a step: {name}"
    look = "" if number else ROWS
    if not run.steps:
        return Figure(id, title, look, run.witness, None, (f"{name}: {NO_STEPS}.",))
    live, padded = ([getattr(step, field) for step in run.steps] for field in ("rows", "padded"))
    bins = binned([step.at for step in run.steps], [live, padded])
    share = sum(padded) / max(sum(live) + sum(padded), 1)
    note = f"Over the whole run {sum(live) / len(live):.3g} rows were live in a step, and {share:.1%} of all rows were padding."
    chart = _stacked(bins, ("live rows", "padding"), bins.means, "rows of a step")
    return Figure(id, title, look, run.witness, chart, (note, _means(bins, run)))


def _tokens(number: int, name: str, run: Run) -> Figure:
    id, title = f"tokens-{number}", f"Tokens of a step by kind: {name}"
    look = "" if number else TOKENS
    if not run.steps:
        return Figure(id, title, look, run.witness, None, (f"{name}: {NO_STEPS}.",))
    kinds = [kind for kind in ("decode", "draft", "prefill") if any(getattr(step, kind) for step in run.steps)]
    bins = binned([step.at for step in run.steps], [[getattr(step, kind) for step in run.steps] for kind in kinds])
    return Figure(id, title, look, run.witness, _stacked(bins, kinds, bins.means, "tokens of a step"), (_means(bins, run),))


def _means(bins: Bins, run: Run) -> str:
    return f"Bars are means over the steps that ended in each {bins.seconds:.3g} s; {len(run.steps):,} steps in all."


def _stacked(bins: Bins, names: Sequence[str], columns: Any, y: str) -> Any:
    """Bars on top of each other."""
    chart = blank(TIME, y)
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        marker = {"color": PARTS[number], "line": {"width": 0}}
        chart.add_bar(x=bins.start + bins.seconds / 2, y=column, width=bins.seconds, name=name, marker=marker)
    chart.update_layout(barmode="stack", bargap=0)
    return chart
