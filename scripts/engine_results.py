"""From runs to results: the figures of each system, ratios round by round, and whether the targets are met. Pure functions."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.served import Overhead, Served, alike, overhead, padded_share, profile
from scripts.workload import Workload

HOST_MS, HOST_SHARE = 1.0, 0.05  # of a step, everything but the compiled call
OVER_STATIC, OVER_PEER, ITL = 2.0, 1.0, 2.0
EXPOSED, HIDDEN = "nothing planned ahead", "a step planned ahead"  # of the host's work, what shows
OURS = ("static", "continuous", "chunked")


@dataclasses.dataclass(frozen=True)
class Target:
    """A figure that was promised.

    Attributes:
      what: in words.
      values: as measured, one a round.
      bound: what their median is to be: at least, or with `most` at most.
    """

    what: str
    values: tuple[float, ...]
    bound: float
    most: bool = False

    @property
    def met(self) -> bool:
        found = statistics.median(self.values)
        return found <= self.bound if self.most else found >= self.bound

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "met": self.met}


def results(
    workload: Workload,
    rows: int,
    settings: Mapping[str, str],
    runs: Mapping[str, Sequence[Served]],
    steps: Mapping[str, Sequence[Served]],
    host_parts: Mapping[str, float],
) -> dict[str, Any]:
    """All of it as plain data.

    Args:
      rows: of our engine.
      settings: of each system, by name, in words.
      runs: of each system on the workload, one a round.
      steps: runs of pure decodes with all rows, one a round: of an engine that plans nothing ahead, and of one that does.
      host_parts: ms of the host's tasks in a step.
    """
    ours = [name for name in runs if name in OURS]
    model = runs[ours[-1]][-1]
    over = {how: [overhead(served.records, rows) for served in each] for how, each in steps.items()}
    return {
        "witness": "measured",
        "workload": {**workload.to_json(), "least_steps": workload.steps(rows)},
        "rows": rows,
        "systems": {
            name: {
                "settings": settings[name],
                "runs": [run_json(served, workload) for served in served_runs],
                "alike": alike(model.tokens, served_runs[-1].tokens)._asdict(),
            }
            for name, served_runs in runs.items()
        },
        "overhead": {how: [each.to_json() for each in found] for how, found in over.items()},
        "host_parts_ms": dict(host_parts),
        "targets": [target.to_json() for target in targets(runs, over)],
        "profiles": {
            name: {
                "padded": padded_share(runs[name][-1].records),
                "parts": {kind: part._asdict() for kind, part in profile(runs[name][-1]).items()},
            }
            for name in ours
        },
    }


def run_json(served: Served, workload: Workload) -> dict[str, Any]:
    """One run. ITL is null where every answer has one token."""
    many = any(len(times) > 1 for times in served.times)
    return {
        "seconds": served.seconds,
        "useful": served.useful,
        "total": served.total(workload),
        "itl_median_ms": served.gaps.median * 1e3 if many else None,
        "itl_p99_ms": served.gaps.percentile(99) * 1e3 if many else None,
        "contention": served.contention,
    }


def targets(runs: Mapping[str, Sequence[Served]], over: Mapping[str, Sequence[Overhead]]) -> list[Target]:
    """Those that the systems which took part can meet. Of the host all its work counts, hidden or not; then what of it shows."""
    exposed, hidden = (tuple(each.median * 1e3 for each in over[how]) for how in (EXPOSED, HIDDEN))
    found = [
        Target("host, ms a step of all rows, median", exposed, HOST_MS, most=True),
        Target("the same where a step is planned ahead, as is usual", hidden, HOST_MS, most=True),
        Target("host, share of those steps", tuple(each.share for each in over[EXPOSED]), HOST_SHARE, most=True),
    ]
    if {"static", "continuous"} <= set(runs):
        what = "continuous over static, tokens/s of answers"
        found.append(Target(what, ratios(runs["continuous"], runs["static"]), OVER_STATIC))
    if "chunked" in runs:
        pairs = zip(runs["chunked"], over[HIDDEN], strict=True)
        values = tuple(served.gaps.percentile(99) / each.step for served, each in pairs)
        found.append(Target("chunked: ITL P99 over a pure-decode step of all rows", values, ITL, most=True))
    ours = max((name for name in runs if name in OURS), key=lambda name: statistics.median(r.useful for r in runs[name]))
    for peer in runs:
        if peer not in OURS:
            found.append(Target(f"{ours} over {peer}, tokens/s of answers", ratios(runs[ours], runs[peer]), OVER_PEER))
    return found


def ratios(ours: Sequence[Served], theirs: Sequence[Served]) -> tuple[float, ...]:
    """Tokens/s of answers, round by round."""
    return tuple(a.useful / b.useful for a, b in zip(ours, theirs, strict=True))
