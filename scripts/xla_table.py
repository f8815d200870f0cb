"""What XLA says of a decode step beside the analytical model, as a table of ratios, for an H100 and a TPU v6e that nobody needs to own.

The step is Llama-3-8B's at context 1024 with gather attention, page 16, 16 bits: unrolled on the GPU, scanned on the TPU. Each figure
stands beside the one that another implementation of the same step gave with jax 0.10.2, with the deviation.
Both are over the analytical weights and KV alone: activations are left out of the divisor, as they were there.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from typing import Any

import click
from rich.console import Console

from costmodel.cli.output import table
from costmodel.compile.program import Platform
from costmodel.hardware.chips import find_chip
from costmodel.hardware.host import today
from costmodel.reconcile import Reconciliation
from costmodel.study import Study
from costmodel.terminal import cli
from models.config.presets import PRESETS

WITHIN = 0.02  # what the two should agree to, with the same JAX

# (chip, batch) -> FLOPs with trip counts, bytes as reported, bytes as traffic, each over the analytical figure; None: not given.
REFERENCE: dict[tuple[str, int], tuple[float | None, float, float]] = {
    ("h100", 1): (1.05, 1.09, 1.09),
    ("h100", 8): (1.00, 1.37, 1.17),
    ("h100", 32): (1.00, 2.07, 1.57),
    ("h100", 64): (1.00, 2.67, 1.90),
    ("h100", 128): (1.00, 3.34, 2.24),
    ("h100", 256): (1.00, 3.98, 2.57),
    ("v6e", 1): (None, 0.10, 1.000),
    ("v6e", 8): (1.001, 0.11, 1.000),
    ("v6e", 32): (1.001, 0.11, 1.000),
}
FIGURES = ("FLOPs", "bytes, reported", "bytes, traffic")


@dataclasses.dataclass(frozen=True)
class Row:
    """One chip and batch: our ratios, those of the reference, and the residuals that make the traffic."""

    chip: str
    batch: int
    ours: tuple[float, ...]
    theirs: tuple[float | None, ...]
    basis: str
    residuals: dict[str, float]  # B beyond the analytical weights and KV, by name

    @property
    def deviations(self) -> tuple[float | None, ...]:
        """ours / theirs - 1. Theirs is rounded: to the last digit printed, a ratio of 0.10 says no more than 5 %."""
        return tuple(None if b is None else a / b - 1 for a, b in zip(self.ours, self.theirs, strict=True))

    @classmethod
    def of(cls, chip: str, found: Reconciliation) -> Row:
        cost, compiled = found.analytical, found.compiled
        batch, idle = int(cost.tokens), float(cost.weight_bytes + cost.kv_bytes)
        multiplied = sum(float(t.flops) for t in cost.terms if t.kind == "weights" and t.component != "norm")
        attention = sum(float(t.flops) for t in cost.terms if t.component in ("scores", "values"))
        ours = (
            compiled.traffic.flops / (multiplied + attention),
            compiled.reported.bytes / idle,
            compiled.traffic.bytes / idle,
        )
        moved = {r.name: r.amount for r in found.residuals if r.between == "analytical and traffic"}
        return cls(chip, batch, ours, REFERENCE[chip, batch], compiled.basis, moved)


def study(chip: str, batches: tuple[int, ...]) -> Study:
    """The step on one chip."""
    found = find_chip(chip)
    platform: Platform = "tpu" if found.name.startswith("tpu") else "gpu"
    return Study(PRESETS["llama-3-8b"], found, found.name, platform, batches, 1024, attention="gather")


@click.command(epilog="Example: python -m scripts.xla_table --chip v6e --batch 1,8")
@click.option("--chip", "chips", type=click.Choice(["h100", "v6e"]), multiple=True, help="Default: both.")
@click.option("--batch", "batches", type=cli.Numbers(), help="Default: all that the reference has.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(chips: tuple[str, ...], batches: tuple[int, ...] | None, as_json: bool) -> None:
    """Compare XLA's count of a decode step, and its memory traffic, with the analytical model and with a reference table."""
    wanted = {
        chip: tuple(b for c, b in REFERENCE if c == chip and (not batches or b in batches)) for chip in chips or ("h100", "v6e")
    }
    rows = []
    with cli.Bars() as bars:
        for chip, sizes in wanted.items():
            one = study(chip, sizes)
            rows += [
                Row.of(chip, found)
                for found in one.run(compiling=bars.bar(f"compiling for {chip}", len(sizes) * len(one.layer_counts()))).rows
            ]
    versions = {name: version(name) for name in ("jax", "jaxlib", "jax-cuda13-plugin", "libtpu")}
    if as_json:
        print(json.dumps({"date": today(), "versions": versions, "rows": [dataclasses.asdict(row) for row in rows]}, indent=1))
        return
    console = Console(width=150, highlight=False)
    console.print(f"{today()}, " + ", ".join(f"{name} {value}" for name, value in versions.items()))
    columns = ("chip", "batch", *(f"{name}\n{side}" for name in FIGURES for side in ("ours", "theirs", "off by")))
    console.print(table("compiled over analytical", columns, [cells(row) for row in rows]))
    console.print("; ".join(f"{chip}: {next(row.basis for row in rows if row.chip == chip)}" for chip in wanted))
    for row in rows:
        parts = sorted(row.residuals.items(), key=lambda pair: -abs(pair[1]))[:4]
        console.print(f"{row.chip} at {row.batch}: " + ", ".join(f"{name} {amount / 1e9:+.3f} GB" for name, amount in parts))


def cells(row: Row) -> list[Any]:
    """A row of the table; a deviation beyond `WITHIN` is marked."""
    shown: list[str] = [row.chip, str(row.batch)]
    for a, b, off in zip(row.ours, row.theirs, row.deviations, strict=True):
        mark = "" if off is None or abs(off) <= WITHIN else " !"
        shown += [f"{a:.3f}", "-" if b is None else f"{b:g}", "-" if off is None else f"{100 * off:+.1f} %{mark}"]
    return shown


def version(package: str) -> str:
    """Of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    cli.run(main)
