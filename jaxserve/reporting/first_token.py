"""Where the time to the first token goes: the mean of each part, over all requests and over those that waited least and longest."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from costmodel.hardware.clock import nearest_rank
from jaxserve.load.parts import STAGES, split
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run
from jaxserve.reporting.figure import COLOURS, GREY, HEIGHT, Figure, Section, blank, hatched

# Requests by their TTFT, fastest first: what a group is called, and the percentile with which it ends.
GROUPS = (("fastest half", 50), ("P50 to P90", 90), ("P90 to P99", 99), ("slowest 1 %", 100))
PATTERNS = ("", "/", "", "x", "", "\\")  # beside colour, for paper
LOOK = (
    "The mean of each stage, which sum to the mean TTFT. Compare the slowest requests with the fastest: the stage that grows is the "
    "one to work on. A queue that grows is too little memory, too few places or too much load; a prefill that grows is long prompts, or "
    "steps shared with those of others."
)


class Group(NamedTuple):
    """Some requests of a run, and the mean s of each part of their TTFT; 0 where none has the part."""

    name: str
    requests: int
    parts: Mapping[str, float]

    @property
    def ttft(self) -> float:
        return sum(self.parts.values())


def groups(records: Sequence[RequestRecord]) -> list[Group]:
    """All requests with a first token, and then by their TTFT; groups without a request are left out."""
    known = sorted((r for r in records if r.answered and r.tokens), key=lambda record: record.ttft)
    ends = [nearest_rank(percent, len(known)) for _, percent in GROUPS]
    cuts = zip(GROUPS, [0, *ends], ends, strict=False)
    some = [("all", known), *((name, known[low:high]) for (name, _), low, high in cuts)]
    return [_group(name, mine) for name, mine in some if mine]


def first_tokens(runs: Mapping[str, Run]) -> Section:
    """A figure for each run. What to look for, and what the stages are, is said of the first."""
    return Section(
        "first-token", "Where the time to the first token goes", tuple(map(_figure, range(len(runs)), runs, runs.values()))
    )


def _group(name: str, records: Sequence[RequestRecord]) -> Group:
    sums: dict[str, float] = {}
    for record in records:
        for part in split(record):
            sums[part.name] = sums.get(part.name, 0.0) + part.seconds
    return Group(name, len(records), {part: total / len(records) for part, total in sums.items()})


def _figure(number: int, name: str, run: Run) -> Figure:
    id, title = f"first-token-{number}", f"Parts of TTFT: {name}"
    found = groups(run.records)
    if not found:
        return Figure(id, title, "" if number else LOOK, run.witness, None, ("No request of this run has a first token.",))
    chart = blank("mean time, ms", "")
    labels = [f"{group.name}<br>n = {group.requests:,}" for group in found][::-1]  # the first one on top
    known = list(dict.fromkeys(part for group in found for part in group.parts))
    for part in known:
        values = [1e3 * group.parts.get(part, 0.0) for group in found][::-1]
        at = list(STAGES).index(part) if part in STAGES else len(STAGES)
        colour = COLOURS[at] if at < len(COLOURS) else GREY
        chart.add_bar(
            x=values,
            y=labels,
            name="<br>".join(textwrap.wrap(part, 34)),  # stages that nobody tells apart have a long name
            orientation="h",
            marker=hatched(colour, PATTERNS[at % len(PATTERNS)]),
            hovertemplate="%{y}: %{x:.4g} ms",
        )
    chart.update_layout(barmode="stack", bargap=0.35, margin={"l": 92}, height=HEIGHT + 40)
    chart.update_yaxes(type="category", ticks="", rangemode="normal")
    notes = [f"{part}: {STAGES[part][1]}." for part in known if part in STAGES and not number]
    if any(part not in STAGES for part in known):
        notes.append("Stages that this server doesn't tell apart run together in one, named after all of them.")
    whole = found[0]
    shares = ", ".join(f"{part} {seconds / whole.ttft:.1%}" for part, seconds in whole.parts.items()) if whole.ttft else "all 0"
    return Figure(id, title, "" if number else LOOK, run.witness, chart, (f"Of all TTFT together: {shares}.", *notes))
