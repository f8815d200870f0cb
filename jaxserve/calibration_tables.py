"""What `python -m jaxserve.calibrate` says, for people and for machines."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from costmodel.calibration.held_out import Errors
from costmodel.commands.calibrate import error_table, parameter_table
from costmodel.commands.output import Output, table
from costmodel.measure import QUIET
from jaxserve.calibration_run import Found

TARGET = "target: median 5 % on decode steps that were held out"


def output(found: Found, as_json: bool) -> Output:
    """All of it."""
    calibration, gap, setup = found.machine.calibration, found.machine.gap, found.setup
    device, (covered, steps) = calibration.device, found.covered
    busy = (found.measured.contention or 0) > QUIET
    head = [
        f"{found.machine.model} in {setup.dtype}, KV {found.machine.kv_dtype}, policy {setup.settings.policy}, "
        f"{setup.rows} rows, context {setup.context}",
        f"{device.name}: reads {device.bandwidth / 1e9:.1f} GB/s, multiplies {device.peak / 1e9:.0f} GFLOP/s (measured ceilings)",
    ]
    contention = "unknown" if found.measured.contention is None else f"{found.measured.contention:.2f}"
    said = [
        f"host gap: {gap.shown} ± {100 * gap.error:.2g} %, {gap.meaning}",
        f"intervals: 90% claimed, {covered:.1%} of {steps:,} steps of the engine's run lie within",
        f"{TARGET}; contention while measuring {contention}{', so measure again on a quiet machine' if busy else ''}",
    ]
    errors: list[tuple[str, Errors]] = [*found.held_out, *found.engine]
    parts: list[str | Table] = [
        *head,
        parameter_table(calibration),
        _points(found),
        error_table(calibration.form, errors),
        *said,
    ]
    return Output(plain(found, head), parts, form="json" if as_json else "text")


def plain(found: Found, head: list[str]) -> dict[str, Any]:
    """For --json. Seconds; errors as shares."""
    return {
        "heading": head,
        "machine": found.machine.to_json(),
        "points": [
            {
                "program": p.cell.bucket.name,
                "kind": p.cell.kind,
                "whole": p.whole,
                "rows": p.cell.rows,
                "context": p.cell.context,
                "measured": p.seconds,
                "calibrated": float(found.machine.calibration.seconds(p.figures._asdict())),
                "roofline": float(found.machine.calibration.roofline(p.figures._asdict())),
            }
            for p in found.measured.points
        ],
        "held_out": [{"name": name, **errors._asdict()} for name, errors in [*found.held_out, *found.engine]],
        "covered": {"level": 0.9, "share": found.covered[0], "steps": found.covered[1]},
        "contention": found.measured.contention,
    }


def _points(found: Found) -> Table:
    """Measured and calibrated ms of the whole model's programs, by context."""
    points = [p for p in found.measured.points if p.whole]
    contexts = sorted({p.cell.context for p in points})
    rows = []
    for name in dict.fromkeys(p.cell.bucket.name for p in points):
        here = {p.cell.context: p for p in points if p.cell.bucket.name == name}
        cells = []
        for context in contexts:
            p = here.get(context)
            fitted = float(found.machine.calibration.seconds(p.figures._asdict())) if p else 0.0
            cells.append(f"{1e3 * p.seconds:.1f} / {1e3 * fitted:.1f}" if p else "-")
        rows.append([name, *cells])
    return table("ms measured / calibrated, by tokens that the longest row holds", ("program", *map(str, contexts)), rows)
