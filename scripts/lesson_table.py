"""The lesson's table three ways: the step of an 8B model on an H100 by the nominal model, by the full one, and as XLA compiled it.

Each witness has its own bytes and FLOPs; seconds are the roofline of those, on the H100's data sheet. No clock is read.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from pathlib import Path

import click

from costmodel.analytical.step import step_cost
from costmodel.cli.decode import LESSON
from costmodel.hardware.chips import find_chip
from costmodel.reconcile import Reconciliation
from costmodel.sizing import ROUND
from costmodel.study import Study
from costmodel.terminal import cli
from models.config.presets import PRESETS
from scripts.experiment import Experiment, table

MODEL, CHIP, CONTEXT = "llama-3-8b", "h100", 1024
WITNESSES = ("nominal", "full", "compiled")


@dataclasses.dataclass(frozen=True)
class Seen:
    """A step of `batch` rows as one witness sees it: B, FLOP, s."""

    batch: int
    bytes: float
    flops: float
    seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        return (f"{self.seconds * 1e3:.2f}", f"{self.flops / self.bytes:.2f}", f"{self.batch / self.seconds:,.1f}")


def nominal(batch: int) -> Seen:
    """Each weight of a round 8B once, each sequence's KV once."""
    count = ROUND[MODEL]
    cost = step_cost(MODEL, batch=batch, context=CONTEXT, chip=CHIP, detail="nominal", parameters=count)
    return Seen(batch, float(cost.bytes), float(cost.flops), float(cost.seconds()))


def full(row: Reconciliation) -> Seen:
    cost = row.analytical
    return Seen(int(cost.tokens), float(cost.bytes), float(cost.flops), float(cost.seconds()))


def compiled(row: Reconciliation) -> Seen:
    """The program's memory traffic, loops counted as often as they run."""
    traffic = row.compiled.traffic
    return Seen(int(row.analytical.tokens), traffic.bytes, traffic.flops, row.compiled_seconds)


def study(batches: tuple[int, ...], attention: str) -> Study:
    chip = find_chip(CHIP)
    return Study(PRESETS[MODEL], chip, chip.name, "gpu", batches, CONTEXT, attention=attention)


@click.command(epilog="Example: python -m scripts.lesson_table --out docs/experiments/lesson-table.md")
@click.option(
    "--batch", "batches", type=cli.Numbers(), default=",".join(map(str, LESSON)), show_default=True, help="Rows of a step."
)
@click.option(
    "--attention",
    type=click.Choice(("blockwise", "gather")),
    default="blockwise",
    show_default=True,
    help="blockwise, as it is served.",
)
@click.option("--out", type=Path, help="Write the page there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(batches: tuple[int, ...], attention: str, out: Path | None, as_json: bool) -> None:
    """Compile the decode step for an H100 that nobody needs to own, and set it beside the models."""
    one = study(batches, attention)
    experiment = Experiment(f"The lesson's table three ways: {MODEL} on {one.chip.name}, context {CONTEXT}", out)
    experiment.facts["jax-cuda13-plugin"] = plugin()
    with cli.Bars() as bars:
        found = one.run(compiling=bars.bar("compiling", len(batches) * len(one.layer_counts())))
    lines = [
        dict(zip(WITNESSES, (nominal(int(row.analytical.tokens)), full(row), compiled(row)), strict=True)) for row in found.rows
    ]
    if as_json:
        rows = [{name: dataclasses.asdict(seen) for name, seen in line.items()} for line in lines]
        print(json.dumps({**experiment.facts, "attention": attention, "rows": rows, "refused": dict(found.refused)}))
        return
    cells = [
        [
            str(line["nominal"].batch),
            *(cell for each in zip(*(seen.cells for seen in line.values()), strict=True) for cell in each),
        ]
        for line in lines
    ]
    head = ["batch", *(f"{what}, {witness}" for what in ("step ms", "FLOP/B", "tok/s") for witness in WITNESSES)]
    basis = found.rows[0].compiled.basis
    refused = [f"Batch {batch} was not compiled: {why}." for batch, why in found.refused.items()]
    experiment.write(
        table(head, cells),
        f"*Nominal* (analytical): {ROUND[MODEL] / 1e9:.1f}e9 parameters of 2 bytes, each read once a step, each row's KV once, 2 FLOP a "
        "parameter and token; nothing else. *Full* (analytical): what a perfect program of this very architecture moves and computes. "
        f"*Compiled*: memory traffic and FLOPs of XLA's program for an {one.chip.name}, {attention} attention, page {one.page}, {basis}; "
        "what kernels find in the chip's cache counts as traffic. All times are rooflines of the data sheet's bandwidth and dense peak: no "
        "launch, no host, no kernel below its roof. None is a measurement.",
        *refused,
        "## What the program moves beyond the full model",
        table(["batch", "traffic over full", "most of the difference, GB"], [beyond(row) for row in found.rows]),
    )


def beyond(row: Reconciliation) -> list[str]:
    """A line on the four largest residuals of one batch."""
    residuals = sorted((r for r in row.residuals if r.between == "analytical and traffic"), key=lambda r: -abs(r.amount))[:4]
    named = ", ".join(f"{r.name} {r.amount / 1e9:+.3f}" for r in residuals)
    return [str(int(row.analytical.tokens)), f"{row.ratio('traffic'):.3f}", named]


def plugin() -> str:
    """Version of the compiler for NVIDIA chips."""
    try:
        return importlib.metadata.version("jax-cuda13-plugin")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    cli.run(main)
