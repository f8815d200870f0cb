"""What the intervals of calibrated steps come to, as a table and as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from costmodel.cli.output import table
from costmodel.terminal.tables import Table
from jaxserve.deployment.step_times import LEVEL
from jaxserve.load.metrics import Summary
from jaxserve.sizing.line import Line
from jaxserve.sizing.study import Study

ENDS = "⁴ the same simulation with every step at the quick and at the slow end of its interval"


def spans(found: Study) -> Iterator[str | Table]:
    """Steps and latencies with their intervals; nothing where steps are analytical."""
    rows = []
    for line in found.lines:
        if line.step is None or line.trial is None or line.ends is None:
            continue
        step, mine = line.step, (line.trial, line.ends.quick, line.ends.slow)
        figures = [_ms(step), *(_ms([_p95(ran.summary, name) for ran in mine]) for name in ("ttft", "itl"))]
        met = ["met" if ran.met else "missed" for ran in (line.ends.quick, line.ends.slow)]
        rows.append((str(line.candidate.batch), *(cell for middle, ends in figures for cell in (middle, ends)), *met))
    if rows:
        level = f"{LEVEL:.0%}"
        columns = (
            "cap", "step of a full batch ms ³", level, "TTFT P95 ms ²", f"{level} ⁴", "ITL P95 ms ²", f"{level} ⁴", "SLO, quick ⁴",
            "slow ⁴",
        )  # fmt: skip
        yield table(f"{level} intervals of calibrated steps, and what follows from them", columns, rows)
        yield f"³ calibrated: {found.steps.of}. {ENDS}"


def plain_ends(line: Line) -> dict[str, Any]:
    """For --json; seconds. Nothing where steps are analytical."""
    if line.step is None:
        return {}
    ends = None
    if line.ends is not None:
        ends = {
            name: {
                "ttft_p95": _plain(ran.summary, "ttft"),
                "itl_p95": _plain(ran.summary, "itl"),
                "met": ran.met,
                "missed": ran.missed,
            }
            for name, ran in line.ends._asdict().items()
        }
    return {"calibrated_step": line.step._asdict(), "interval": ends}


def _p95(summary: Summary, name: str) -> float:
    return float(getattr(summary, name).p95)


def _plain(summary: Summary, name: str) -> float | None:
    value = _p95(summary, name)
    return None if math.isnan(value) else value


def _ms(span: Any) -> tuple[str, str]:
    """(middle, "quick to slow") of s, in ms."""
    middle, quick, slow = (f"{value * 1e3:,.2f}" for value in span)
    return middle, f"{quick} to {slow}"
