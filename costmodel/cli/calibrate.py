"""`python -m costmodel calibrate`: what measured kernels of a GPU say of it, how well that predicts, and what follows for other chips."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.analytical.step import step_cost
from costmodel.calibration.calibration import Calibration
from costmodel.calibration.coverage import Coverage, coverage
from costmodel.calibration.held_out import Errors
from costmodel.calibration.kernel_step import KernelStep
from costmodel.calibration.kernels import Kernel, KernelCalibration, decode_table, gemm_table, prefill_table
from costmodel.calibration.transfer import SPREAD, transfer
from costmodel.cli.choices import ModelChoice, choose_model
from costmodel.cli.output import Output, table
from costmodel.hardware.chip import Chip
from costmodel.hardware.chips import find_chip
from costmodel.json_file import check_out, write_out
from costmodel.terminal.tables import Table

Bar = Callable[[str, int], Callable[[int], None]]
LEVEL = 0.9  # of intervals
FEW = 512  # rows: up to here matmuls are those of decode and of small chunks
TARGETS = "targets: median 10 % for matmuls of up to 512 rows by shape, and for attention of rows that decode"


class Study(NamedTuple):
    """What was found of one kind of kernel."""

    calibration: Calibration
    errors: list[tuple[str, Errors]]
    coverage: Coverage


def run(
    bar: Bar, *, silicon: Path, chip: str, model: str, batches: tuple[int, ...], context: int, out: Path | None, as_json: bool
) -> Output:
    """See `--help`. Raises UserError for tables that are none, a chip or a model whose kernels can't be priced."""
    check_out(out, "kernels.json")
    on, chosen = find_chip(chip), choose_model(model)
    tables = [read(silicon) for read in (gemm_table, decode_table, prefill_table)]
    advance = bar("fitting", sum(2 + len(kernel.groups) for kernel in tables))
    studies = [study(kernel, advance) for kernel in tables]
    kernels = KernelCalibration(*[each.calibration for each in studies])
    there = transfer(kernels, on)
    steps = step_rows(KernelStep(chosen.architecture, there), chosen, on, batches, context)
    write_out(out, there.to_json())
    return Output(
        plain(studies, there, steps), parts(studies, there, steps, chosen, context), form="json" if as_json else "text"
    )


def study(kernel: Kernel, advance: Callable[[int], None]) -> Study:
    """Fit a table, hold out what it can be held out by, and check its intervals."""
    part = kernel.sample()
    calibration, errors = part.calibrate(), []
    advance(1)
    for by in kernel.groups:
        held = part.held_out(by, start=calibration.values)
        errors.append((f"by {by}", held.errors()))
        if "m" in part.features:
            errors.append((f"by {by}, m <= {FEW}", held.errors(part.features["m"] <= FEW)))
        elif "cold" in part.features:
            beyond = part.features["batch"] * part.features["context"] * part.features["kv_heads"] * 512 > part.device.cache
            errors.append((f"by {by}, KV beyond the cache", held.errors(beyond)))
        advance(1)
    covered = coverage(part, LEVEL, start=calibration.values)
    advance(1)
    return Study(calibration, errors, covered)


def step_rows(
    step: KernelStep, model: ModelChoice, chip: Chip, batches: tuple[int, ...], context: int
) -> list[dict[str, float]]:
    """Decode steps: the roofline, the sum of kernels, and its interval. s."""
    rows = []
    for batch in batches:
        share = step.share(batch, batch, [context] * batch, [])
        low, high = step.band(share, LEVEL)
        bare = float(step_cost(model.best, batch=batch, context=context, chip=chip).seconds())
        row = {"batch": batch, "analytical": bare, "calibrated": share.seconds}
        rows.append({**row, "low": share.seconds * math.exp(low), "high": share.seconds * math.exp(high), **share._asdict()})
    return rows


def parts(
    studies: list[Study], there: KernelCalibration, steps: list[dict[str, float]], model: ModelChoice, context: int
) -> list[str | Table]:
    """For people."""
    found: list[str | Table] = []
    for each in studies:
        found += [parameter_table(each.calibration), error_table(each.calibration.form, each.errors), each.coverage.line]
    found.append(TARGETS)
    device = there.device
    if there.gemm.widened:
        found.append(f"{device.name} was never fitted: its data sheet with these fractions, and {SPREAD:.0%} more spread")
    rows = [
        [f"{r['batch']:.0f}", *(f"{1e3 * r[name]:.3f}" for name in ("analytical", "calibrated", "low", "high")),
         *(f"{100 * r[name] / r['calibrated']:.0f} %" for name in ("matmuls", "decode", "small"))]
        for r in steps
    ]  # fmt: skip
    columns = ("batch", "analytical ms", "calibrated ms", f"{LEVEL:.0%} from", "to", "matmuls", "attention", "small kernels")
    title = (
        f"decode step of {model.name} on {device.name}, context {context}, bfloat16: roofline, and sum of calibrated kernels"
    )
    return [*found, table(title, columns, rows)]


def parameter_table(calibration: Calibration) -> Table:
    """Parameters with their errors and meaning."""
    rows = [
        [p.name, *((p.shown, f"± {100 * p.error:.2g} %") if p.value else ("none", "-")), p.meaning]
        for p in calibration.parameters
    ]
    title = f"{calibration.form} on {calibration.device.name}: fitted to {calibration.points:,} times ({calibration.source})"
    return table(title, ("parameter", "value", "standard error", "meaning"), rows, words=1)


def error_table(form: str, errors: list[tuple[str, Errors]]) -> Table:
    """Errors of the fit and of the bare roofline on points that were held out."""
    rows = [
        [
            name,
            f"{e.points:,}",
            f"{e.groups:,}",
            *(f"{100 * x:.1f} %" for x in (e.median, e.p90, e.roofline_median, e.roofline_p90)),
        ]
        for name, e in errors
    ]
    columns = ("held out", "points", "groups", "calibrated median", "P90", "roofline median", "P90")
    return table(f"{form}: |predicted / measured - 1| where the fit had not seen the group", columns, rows)


def plain(studies: list[Study], there: KernelCalibration, steps: list[dict[str, float]]) -> dict[str, Any]:
    """For --json. Seconds; errors as shares."""
    return {
        "kernels": [
            {
                **each.calibration.to_json(),
                "held_out": [{"name": name, **errors._asdict()} for name, errors in each.errors],
                "coverage": each.coverage._asdict(),
            }
            for each in studies
        ],
        "chip": there.device._asdict(),
        "widened": there.gemm.widened,
        "steps": steps,
    }
