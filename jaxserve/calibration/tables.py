"""What `python -m jaxserve.calibrate` says, for people and for machines."""

from __future__ import annotations

from typing import Any

from costmodel.calibration.held_out import Errors
from costmodel.cli.calibrate import error_table, parameter_table
from costmodel.cli.output import Output, table
from costmodel.hardware.ceilings import QUIET
from costmodel.terminal.tables import Table
from jaxserve.calibration.run import LEVEL, Found

TARGET = "target: median 5 % on decode steps that were held out"


def output(found: Found, as_json: bool) -> Output:
    """All of it."""
    calibration, gap, setup = found.machine.calibration, found.machine.gap, found.setup
    device, judged, noise = calibration.device, found.judged, found.measured.noise
    busy = (found.measured.contention or 0) > QUIET
    head = [
        f"{found.machine.model} in {setup.dtype}, KV {found.machine.kv_dtype}, policy {setup.settings.policy}, "
        f"{setup.rows} rows, context {setup.context}",
        f"{device.name}: reads {device.bandwidth / 1e9:.1f} GB/s, multiplies {device.peak / 1e9:.0f} GFLOP/s (measured ceilings)",
    ]
    contention = "unknown" if found.measured.contention is None else f"{found.measured.contention:.2f}"
    said = [
        f"host gap: {gap.shown} ± {100 * gap.error:.2g} %, {gap.meaning}",
        f"intervals: {LEVEL:.0%} claimed, {judged.covered:.1%} found: of {judged.steps:,} steps of engine's runs that nothing had seen "
        f"(run by run {', '.join(f'{each:.0%}' for each in judged.runs)})",
        f"engine: its steps take {100 * found.engine:+.1f} % over what a fit of the programs alone says (median over steps)",
        f"clock: medians of odd and even rounds differ by {noise.halves:.1%}, so the medians themselves are known to about "
        f"{noise.floor:.1%}; a single step strays by {noise.single:.1%} from its median (medians over programs); "
        f"the machine's speed drifts by {noise.drift:.1%} from round to round (sd)",
        f"{TARGET}; contention while measuring {contention}{', so measure again on a quiet machine' if busy else ''}",
    ]
    errors: list[tuple[str, Errors]] = [*found.held_out, *judged.errors]
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
        "held_out": [{"name": name, **errors._asdict()} for name, errors in [*found.held_out, *found.judged.errors]],
        "covered": {
            "level": LEVEL,
            "share": found.judged.covered,
            "steps": found.judged.steps,
            "runs": list(found.judged.runs),
            "calibrating": found.calibrating,
        },
        "engine over programs": found.engine,
        "clock": {**found.measured.noise._asdict(), "floor": found.measured.noise.floor},
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
