"""Experiment 2: decode steps over batches on this machine, by every witness: analytical, compiled, calibrated, measured.

Each calibrated figure is of a fit that has not seen its batch. Analytical and compiled are rooflines on this machine's measured ceilings.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import jax
import numpy as np

from costmodel.analytical.step import step_cost
from costmodel.calibration.device import Device
from costmodel.calibration.held_out import HeldOut
from costmodel.cli.output import Output, table
from costmodel.hardware.ceilings import ceilings
from costmodel.hardware.chip import Chip
from costmodel.hardware.host import host_key, today
from costmodel.reconcile import reconcile
from costmodel.terminal import cli
from jaxserve.calibration.measured_points import Measured, measure_points
from jaxserve.calibration.run import held_out, host_device
from jaxserve.engine.build import EngineBuild, choose
from jaxserve.engine.config import EngineConfig
from jaxserve.engine.engine import Engine
from jaxserve.options import CACHE, takes
from jaxserve.programs.compile_cache import Choice
from jaxserve.version import version
from scripts.options import whole

WITNESSES = ("analytical", "compiled", "calibrated", "measured")


class Row(NamedTuple):
    """A batch, and s of its step by each witness."""

    batch: int
    context: int
    analytical: float
    compiled: float
    calibrated: float
    measured: float


def sweep(setup: EngineBuild, engine: Engine, measured: Measured, held: HeldOut, context: int, chip: Chip) -> list[Row]:
    """One for each batch whose rows held `context` tokens."""
    config = setup.checkpoint.config
    found = []
    for point, predicted in zip(measured.points, held.predicted.tolist(), strict=True):
        if not point.decodes or point.cell.context != context:
            continue
        batch, program = point.cell.rows, engine.programs[point.cell.bucket]
        cost = step_cost(config, batch=batch, context=context, chip=chip, dtype=setup.dtype, kv_dtype=setup.room.pool.dtype)
        compiled = reconcile(cost, program.ledger(program.trips([[(context, 1)] * batch]))).compiled_seconds
        found.append(Row(batch, context, float(cost.seconds()), compiled, predicted, point.seconds))
    return found


def output(setup: EngineBuild, device: Device, measured: Measured, found: list[Row], as_json: bool) -> Output:
    """For people or machines."""
    busy = "unknown" if measured.contention is None else f"{measured.contention:.2f}"
    facts = [
        f"{setup.settings.model} in {setup.dtype}, KV {setup.room.pool.dtype}, context {found[0].context}; {today()}",
        f"{host_key()}; jaxserve {version()}, jax {jax.__version__}, numpy {np.__version__}",
        f"ceilings: {device.bandwidth / 1e9:.1f} GB/s, {device.peak / 1e9:.0f} GFLOP/s; "
        f"medians of {measured.rounds} rounds, contention {busy}",
    ]
    cells: list[list[str]] = []
    errors: dict[str, list[float]] = {name: [] for name in WITNESSES[:3]}
    for row in found:
        line = [str(row.batch), *(f"{1e3 * getattr(row, name):.2f}" for name in WITNESSES)]
        for name in WITNESSES[:3]:
            errors[name].append(getattr(row, name) / row.measured - 1)
            line.append(f"{100 * errors[name][-1]:+.1f} %")
        cells.append([*line, f"{row.batch / row.measured:,.1f}"])
    columns = (
        "batch",
        *(f"{name} ms" for name in WITNESSES),
        *(f"{name} is off" for name in WITNESSES[:3]),
        "tokens/s measured",
    )
    medians = ", ".join(f"{name} {100 * float(np.median(np.abs(each))):.1f} %" for name, each in errors.items())
    said = f"median error against measured: {medians}; calibrated by a fit that had not seen the batch"
    data = {"facts": facts, "rows": [row._asdict() for row in found], "contention": measured.contention}
    return Output(data, [*facts, table("a decode step", columns, cells), said], form="json" if as_json else "text")


@click.command(epilog="Example: python -m scripts.batch_sweep --rows 64 --context 256")
@click.option("--model", default="smollm2", show_default=True, help="As of jaxserve.generate.")
@click.option("--dtype", default="auto", show_default=True, help="Of the weights: auto, float32, bfloat16.")
@click.option("--rows", "most", type=whole(8), default=64, show_default=True, help="The largest batch.")
@click.option("--context", type=whole(32), default=256, show_default=True, help="Tokens that each row holds in the table.")
@click.option("--rounds", type=whole(3), default=7, show_default=True, help="Interleaved; medians count.")
@takes(CACHE)
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
def main(model: str, dtype: str, most: int, context: int, rounds: int, compile_cache: Choice, as_json: bool) -> None:
    """Measure decode steps over batches and show what each witness says of them."""
    settings = EngineConfig(model=model, dtype=dtype, rows=most, context=2 * context, compile_cache=compile_cache)
    limits = ceilings()
    with cli.Bars() as bars:
        setup = choose(settings)
        engine = setup.engine(setup.load(bars.bar), bar=bars.bar)
        contexts = (context // 4, context // 2, context, 2 * context)
        measured = measure_points(setup, engine, contexts, rounds, bars.bar)
    device = host_device(limits, setup.dtype)
    held = held_out(measured.points, device, "batch")
    output(setup, device, measured, sweep(setup, engine, measured, held, context, limits.chip()), as_json).print()


if __name__ == "__main__":
    cli.run(main)
