"""`python -m costmodel decode`: a decode step by every witness."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from costmodel.analytical.terms import StepCost
from costmodel.capacity import fit, kv_pool
from costmodel.cli.choices import ChipChoice, ModelChoice, choose_chip, choose_model
from costmodel.cli.decode_tables import lesson, rows_of, terms_of, waterfall, witnesses
from costmodel.cli.output import Output
from costmodel.compile.target_table import TARGETS
from costmodel.hardware.chip import Chip
from costmodel.plot import Point, check_path, draw_roofline
from costmodel.reconcile import Reconciliation
from costmodel.study import Study
from models.errors import UserError

Bar = Callable[[str, int], Callable[[int], None]]
LAYERS = {"auto": None, "scanned": True, "unrolled": False}
LESSON = (1, 2, 4, 8, 16, 32, 64, 128, 256)

SLACK = 1e6  # pages of the pool over those that rows need, at most


def run(
    bar: Bar,
    *,
    model: str,
    chip: str,
    batches: tuple[int, ...],
    context: int,
    analytical: bool,
    dtype: str | None,
    kv_dtype: str | None,
    attention: str,
    layers: str,
    page: int,
    slack: float,
    whole: bool,
    repeats: int,
    table: str | None,
    plot: Path | None,
    as_csv: bool,
    as_json: bool,
) -> Output:
    """See `--help`. Raises UserError for options that do not go together or that no model, chip or compiler takes."""
    if layers not in LAYERS:
        raise UserError(f"--layers {layers!r} is unknown; give {', '.join(LAYERS)}")
    if as_csv and as_json:
        raise UserError("--csv and --json are given; give one of them")
    if repeats and chip != "host":
        raise UserError(f"--measure runs the step on this machine, which is no {chip}; add --chip host")
    if repeats and analytical:
        raise UserError("--measure runs the compiled step, and --analytical compiles nothing; give one of them")
    if not 1 <= slack <= SLACK:
        raise UserError(f"--slack is {slack}; it must lie from 1, the pages that the rows need, to {SLACK:g}")
    if plot is not None:
        check_path(plot)
    form = "csv" if as_csv else "json" if as_json else "text"
    chosen, where = choose_model(model), choose_chip(chip)
    study = Study(
        chosen.best,
        where.chip,
        where.target or "",
        where.platform,
        tuple(dict.fromkeys(batches)),
        context,
        dtype=dtype,
        kv_dtype=kv_dtype,
        attention=attention,
        scanned=LAYERS[layers],
        page=page,
        slack=slack,
        whole=whole,
    )
    head = heading(chosen, where.chip, study)
    if table == "lesson":
        return lesson(head, chosen, where.chip, context, LESSON, form)
    costs = {batch: study.analytical(batch) for batch in study.batches}
    if analytical:
        if plot:
            draw_roofline(plot, where.chip, study.weights, [_point("analytical", b, c) for b, c in costs.items()], head[0])
        return terms_of(head, costs, form)
    _compilable(where, chip)
    jobs = len(study.batches) * len(study.layer_counts())
    compiling, measuring = bar(f"compiling for {where.chip.name}", jobs), bar("measuring", len(study.batches) if repeats else 0)
    found = study.run(repeats=repeats, compiling=compiling, measuring=measuring)
    if plot:
        draw_roofline(plot, where.chip, study.weights, [point for row in found.rows for point in _points(row)], head[0])
    rows = [rows_of(row) for row in found.rows]
    refused = [f"batch {batch} is left out: {why}" for batch, why in found.refused.items()]
    data = {"heading": list(head), "batches": rows, "refused": {str(batch): why for batch, why in found.refused.items()}}
    return Output(data, [*head, *witnesses(found.rows), *refused, waterfall(found.rows)], _flat(rows), form)


def heading(model: ModelChoice, chip: Chip, study: Study) -> tuple[str, ...]:
    """Lines that say what the figures are of and where they come from."""
    a, kv = model.architecture, study.kv_dtype or study.weights
    largest = max(study.batches)
    pool = largest * kv_pool(a, float(chip.memory), kv_dtype=kv, page=study.page).sequence(study.context)
    room = fit(a, chip, pool=pool, dtype=study.weights, kv_dtype=kv)
    form = "" if model.config is None else f", {study.attention} attention, page {study.page}"
    return (
        f"decode step of {model.name} on {chip.name}: context {study.context}, weights {study.weights}, KV {kv}{form}",
        f"{a.parameter_count / 1e9:.3f}e9 parameters ({a.source}); chip: {chip.source}; jax {jax.__version__}",
        f"at batch {largest} {room.verdict}",
    )


def _compilable(where: ChipChoice, name: str) -> None:
    if where.target is None:
        raise UserError(f"there is no compiler here for {name}; add --analytical, or take one of {', '.join(TARGETS)}, host")


def _point(witness: str, batch: int, cost: StepCost) -> Point:
    return Point(witness, batch, float(cost.intensity), float(cost.flops) / float(cost.seconds()))


def _points(row: Reconciliation) -> list[Point]:
    """Analytical at its roofline time; compiled at that of its traffic; measured with the analytical work over the measured time."""
    cost, traffic, batch = row.analytical, row.compiled.traffic, int(row.analytical.tokens)
    points = [_point("analytical", batch, cost)]
    points.append(Point("compiled", batch, traffic.flops / traffic.bytes, traffic.flops / row.compiled_seconds))
    if row.measured:
        points.append(Point("measured", batch, float(cost.intensity), float(cost.flops) / row.measured.seconds))
    return points


def _flat(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line a batch: figures by witness, then each residual of bytes under its own name."""
    names = dict.fromkeys(r["name"] for row in rows for r in row["residuals"])
    flat = []
    for row in rows:
        line = {"batch": row["batch"]}
        for witness in ("analytical", "reported", "with_trips", "traffic"):
            line |= {f"{witness}_{key}": value for key, value in row[witness].items() if isinstance(value, (int, float, str))}
        line["measured_seconds"] = row["measured"]["seconds"] if row["measured"] else ""
        amounts = {r["name"]: r["amount"] for r in row["residuals"]}
        flat.append(line | {f"residual: {name}": amounts.get(name, 0.0) for name in names})
    return flat
