"""Link bytes of `costmodel`'s layouts beside the collectives that XLA puts into a program whose arrays lie that way.

Each case is compiled for 8 chips that are not here, as a mesh of 2 by 2 by 2: a decode step of a model cut to two layers, or a small
prefill where weights are gathered. Bytes are those that one chip sends, and those that it holds between steps.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import lzma
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import find_architecture
from costmodel.compile.targets import compile_for
from costmodel.ledger.ledger import Ledger, ledger
from costmodel.parallel.layouts import Layout, Mesh
from costmodel.parallel.stages import sharded_step
from costmodel.terminal import cli
from costmodel.terminal.tables import Table
from scripts.partitioned_step import PartitionedStep

TARGETS = ("h100", "v5e")
SIZES = {"x": 2, "y": 2, "z": 2}


def two_layers(name: str) -> Architecture:
    """The first two layers of a model, and its embedding and head, which are two tables here."""
    whole = find_architecture(name)
    weights = tuple(dataclasses.replace(w, count=w.count * 2 // whole.layers if w.count > 1 else 1) for w in whole.weights)
    return dataclasses.replace(whole, layers=2, windows=whole.windows[:2], weights=weights, tied_head=False)


def _case(model: str, feedforward: str, attention: str, tokens: int = 1) -> PartitionedStep:
    layout = Layout(Mesh(2, 2, 2), feedforward, attention)
    return PartitionedStep(two_layers(model), layout, batch=32, context=1024, tokens=tokens)


CASES: Mapping[str, PartitionedStep] = {
    "llama-3-8b ws-1d heads": _case("llama-3-8b", "ws-1d", "heads"),
    "llama-3-8b ws-2d heads": _case("llama-3-8b", "ws-2d", "heads"),
    "llama-3-8b ws-2d batch": _case("llama-3-8b", "ws-2d", "batch"),
    "palm-8b ws-2d batch": _case("palm-8b", "ws-2d", "batch"),
    "llama-3-8b wg-xyz batch": _case("llama-3-8b", "wg-xyz", "batch", tokens=64),
}
# Where a program sends other bytes than the formulas say.
WHY = {
    ("h100", "palm-8b ws-2d batch"): (
        "The formulas reduce K and V of the one KV head into the batch along x. XLA all-reduces the half of the rows that the next "
        "split along y and z keeps, and then permutes them into place: twice the bytes, 0.6 % of the step's."
    ),
    ("h100", "llama-3-8b wg-xyz batch"): (
        "Weights are gathered along yz and then along x, which adds up to the same. Embeddings are exchanged along x before they are "
        "reduced into the batch, for E_x becomes E whole: 4.2 MB that the formulas leave out. The last hidden states are gathered "
        "whole and not as E_x."
    ),
    ("v5e", "llama-3-8b ws-1d heads"): (
        "The reduce-scatter after `down` is a loop of matmuls and permutes, as section 3.5's: four times one piece goes each way round, "
        "and one of the two sums ends a place off, so nine eighths of the buffer are sent where a ring sends seven."
    ),
    ("v5e", "llama-3-8b ws-2d heads"): (
        "Logits are all-reduced along x and then cut, 2.1 MB more: 128,256 tokens by 8 are no whole number of tiles of 128."
    ),
    ("v5e", "llama-3-8b ws-2d batch"): "Logits, as by heads.",
    ("v5e", "palm-8b ws-2d batch"): "K and V as on the H100. The logits are whole tiles here, and reduce-scattered.",
    ("v5e", "llama-3-8b wg-xyz batch"): "Logits as in ws-2d; embeddings and last hidden states as on the H100.",
}


def analytical(case: PartitionedStep) -> dict[tuple[str, str], float]:
    """Link bytes of a chip by kind of collective and mesh axes."""
    step = sharded_step(case.model, case.layout, batch=case.batch, context=case.context, tokens=case.tokens)
    return _sum([(e.kind, e.axes, e.link_bytes) for e in step.exchanges])


def compiled(program: Ledger) -> dict[tuple[str, str], float]:
    """The same of a program, each collective as often as it runs."""
    sent = [(each, line.runs or 0) for line in program.lines for each in line.traffic.collectives]
    return _sum([(each.operation, each.axis.replace(",", ""), each.link_bytes * runs) for each, runs in sent])


def _sum(sent: list[tuple[str, str, float]]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = collections.defaultdict(float)
    for kind, axes, amount in sent:
        found[kind, axes] += amount
    return dict(found)


def compare(name: str, text: str) -> dict[str, Any]:
    """A case beside its program: a row for each kind and axes that either has, largest first, their totals, and what a chip holds."""
    case, program = CASES[name], ledger(text, mesh=SIZES)
    model, found = analytical(case), compiled(program)
    rows = [
        {"kind": kind, "axes": axes, "analytical": model.get((kind, axes), 0.0), "compiled": found.get((kind, axes), 0.0)}
        for kind, axes in {**model, **found}
    ]
    memory = sharded_step(case.model, case.layout, batch=case.batch, context=case.context, tokens=case.tokens).memory
    return {
        "rows": sorted(rows, key=lambda row: -max(float(row["analytical"]), float(row["compiled"]))),
        "sent": {"analytical": sum(model.values()), "compiled": sum(found.values())},
        # The compiled figure has the tokens and the position among the arguments too.
        "held": {
            "analytical": memory.weights + memory.kv,
            "compiled": sum(p.shape.bytes for p in program.module.entry.parameters),
        },
    }


@click.command(help=__doc__.partition("\n\n")[0], epilog="Example: python -m scripts.partitioned --target h100 --keep programs")
@click.option("--target", "targets", default=",".join(TARGETS), show_default=True, help="Chips to compile for.")
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), help="One case; all of them by default.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the programs' texts in this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(targets: str, names: tuple[str, ...], keep: Path | None, as_json: bool) -> None:
    results = []
    for target in targets.split(","):
        for name in names or CASES:
            case = CASES[name]
            program = compile_for(target, case, *case.abstract_args(), donate=case.donate, mesh=SIZES, specs=case.specs())
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                # Without the folders that the sources were compiled from.
                text = re.sub(r'"/[^"\n]*/([^"/\n]+)"', r'"\1"', program.text)
                (keep / file_name(target, name)).write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
            results.append({"target": target, "case": name, "versions": dict(program.versions), **compare(name, program.text)})
            if not as_json:
                tell(results[-1])
    if as_json:
        print(json.dumps(results, indent=1))


def file_name(target: str, name: str) -> str:
    return f"{target}_{name.replace(' ', '_')}.hlo.xz"


def tell(result: dict[str, Any]) -> None:
    view = Table(title=f"{result['target']}, {result['case']}")
    for i, column in enumerate(("B a chip", "axes", "analytical", "compiled", "ratio")):
        view.add_column(column, justify="left" if i < 2 else "right")
    totals = [
        {"kind": what, "axes": "", **result[key]} for what, key in (("sent in all", "sent"), ("held between steps", "held"))
    ]
    for row in (*result["rows"], *totals):
        ratio = f"{row['compiled'] / row['analytical']:.3f}" if row["analytical"] else "-"
        view.add_row(row["kind"], row["axes"], f"{row['analytical']:,.0f}", f"{row['compiled']:,.0f}", ratio)
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    console.print(view)
    console.print(WHY.get((result["target"], result["case"]), "No difference."), "\n")


if __name__ == "__main__":
    cli.run(main)
