"""How latencies are distributed: TTFT, ITL, TPOT and E2E, a curve a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run
from jaxserve.reporting.figure import Figure, Section, blank, graduate, line, reference
from jaxserve.reporting.thin import distribution


class Kind(NamedTuple):
    """A latency.

    Attributes:
      name: the field's own.
      what: its definition, short.
      of: s of a request, as many as it has.
      counted: what one value belongs to.
      look: what to look for in its distribution.
    """

    name: str
    what: str
    of: Callable[[RequestRecord], Iterable[float]]
    counted: str
    look: str


KINDS = (
    Kind(
        "TTFT",
        "from the intended arrival to the first token",
        lambda record: (record.ttft,),
        "requests",
        "A long flat tail to the right is a queue: see below where the time went.",
    ),
    Kind(
        "ITL",
        "each gap between two tokens of an answer",
        lambda record: record.itl,
        "gaps",
        "Two steps in the curve are two kinds of engine step: decodes alone, and decodes that waited for someone's prompt.",
    ),
    Kind(
        "TPOT",
        "mean gap of an answer, its first token left out",
        lambda record: (record.tpot,),
        "requests",
        "It hides single long gaps that ITL shows; the steeper the curve, the more alike clients were treated.",
    ),
    Kind(
        "E2E",
        "from the intended arrival to the last token",
        lambda record: (record.e2e,),
        "requests",
        "Mostly the length of answers; compare it between runs of the same requests only.",
    ),
)


def latencies(runs: Mapping[str, Run]) -> Section:
    """A figure for each kind of latency.

    Args:
      runs: by name.
    """
    witness = " and ".join(dict.fromkeys(run.witness for run in runs.values()))
    return Section("latency", "How long clients waited", tuple(_figure(kind, runs, witness) for kind in KINDS))


def seconds(kind: Kind, run: Run) -> list[float]:
    """Every value of a run's answered requests, as `jaxserve.load.metrics` counts them."""
    return [value for record in run.records if record.answered for value in kind.of(record) if not math.isnan(value)]


def _figure(kind: Kind, runs: Mapping[str, Run], witness: str) -> Figure:
    id, title = f"cdf-{kind.name.lower()}", f"{kind.name}: {kind.what}"
    look = f"The share of {kind.counted} that took at most so long; further left is better. {kind.look}"
    chart, notes = blank(f"{kind.name}, ms", f"share of {kind.counted}, %", log_x=True), []
    for number, (name, run) in enumerate(runs.items()):
        found = seconds(kind, run)
        least = min((value for value in found if value > 0), default=0.0)
        if not least:
            notes.append(f"{name}: no request has one.")
            continue
        if zeros := sum(value <= 0 for value in found):
            notes.append(f"{name}: {zeros:,} of {len(found):,} are 0, for tokens came together; they stand at the left end.")
        curve = distribution([max(value, least) * 1e3 for value in found])
        line(chart, curve.x, 100 * curve.y, name, number, line={"shape": "hv"})
        if curve.thinned:
            notes.append(f"{name}: {len(curve.x):,} points of {curve.whole:,} are drawn, of evenly spaced ranks.")
    if not chart.data:
        return Figure(id, title, look, witness, None, tuple(notes))
    for percent, limit in _limits(kind, runs):
        reference(chart, [limit * 1e3] * 2, [0, 100], f"wanted: P{percent:g} ≤ {limit * 1e3:g} ms", dash="dot")
    chart.update_yaxes(range=[0, 102])
    graduate(chart.layout.xaxis, [float(x) for trace in chart.data for x in (trace.x[0], trace.x[-1])])
    return Figure(id, title, look, witness, chart, tuple(notes))


def _limits(kind: Kind, runs: Mapping[str, Run]) -> list[tuple[float, float]]:
    """(percentile, s) that some run was to keep."""
    limits = [limit for run in runs.values() if run.slo for limit in run.slo.limits()]
    return list(dict.fromkeys((percent, wanted) for metric, percent, wanted in limits if metric == kind.name.lower()))
