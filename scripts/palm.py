"""The published PaLM runs of Pope et al. 2022 on TPU v4 beside `costmodel`'s layouts: how far off the model is, run by run, and why.

No constant is fitted. Seconds of the model are at the chip's peaks, under two assumptions of overlap and two of the links:
hidden    every collective behind its own matmul, over all links of the chip (the best that section 3.5 could do)
exposed   every collective after its matmul, over all links
own links exposed, over the links that lie along the collective's mesh axes: a third of a 3D torus for each
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click
from rich.console import Console

from costmodel.hardware.chips import find_chip
from costmodel.parallel.layouts import Layout, Mesh
from costmodel.parallel.partitioning import LayoutSearch, max_context
from costmodel.parallel.sharded import Links
from costmodel.parallel.shares import BF16
from costmodel.terminal import cli
from costmodel.terminal.tables import Table
from scripts.palm_runs import BF16_TOKEN, CACHE_SHARE, CONTEXTS, INT8_TOKEN, RUNS, SERIAL, Run

CHIP = find_chip("tpu-v4")
LINKS: tuple[Links, ...] = ("all", "own")
DECODE, LARGE = RUNS[1], RUNS[3]  # the runs that section 4 varies


def seconds(run: Run) -> dict[str, float]:
    """Of the whole run, by assumption."""
    step = run.step()
    return {
        "hidden": step.seconds(CHIP, overlap="full") * run.steps,
        "exposed": step.seconds(CHIP, overlap="none") * run.steps,
        "own links": step.seconds(CHIP, overlap="none", links="own") * run.steps,
    }


def compare(run: Run) -> dict[str, Any]:
    """A run as plain data: published, modelled, the ratio, and where the model's seconds go."""
    step, times, peak = run.step(), seconds(run), CHIP.peak("bfloat16")
    collectives = sum(exchange.runs for exchange in step.exchanges) * run.steps
    left = run.seconds - times["own links"]
    return {
        "run": run.name,
        "layout": str(step.layout),
        "chips": run.mesh.chips,
        "batch": run.batch,
        "weights": run.weights,
        "published_s": run.seconds,
        "published_mfu": run.mfu,
        "model_s": times,
        "model_over_published": {name: value / run.seconds for name, value in times.items()},
        "model_mfu": {name: run.utilisation(value, peak) for name, value in times.items()},
        "parts_s": {
            "multiply": step.flops / peak * run.steps,
            "weights": sum(s.weight_bytes for s in step.stages) / CHIP.bandwidth * run.steps,
            "cache": sum(s.kv_bytes for s in step.stages) / CHIP.bandwidth * run.steps,
            "other": sum(s.activation_bytes for s in step.stages) / CHIP.bandwidth * run.steps,
            "links": step.link_seconds(CHIP) * run.steps,
            "own links": step.link_seconds(CHIP, "own") * run.steps,
        },
        "memory_gb": step.memory.total / 1e9,
        "left_s": left,
        "left_us_a_layer": left / run.steps / run.model.layers * 1e6,
        "collectives": collectives,
        "left_us_a_collective": left / collectives * 1e6,
        "why": run.why,
    }


def differences() -> list[dict[str, Any]]:
    """What two published runs differ by, where whatever the model lacks in both cancels."""
    narrow, wide = (DECODE.step(items=items).seconds(CHIP, overlap="none", links="own") for items in (DECODE.items, BF16))
    parallel, serial = LARGE.step(), LARGE.step(dataclasses.replace(LARGE.model, parallel=False))
    every = serial.link_seconds(CHIP) - parallel.link_seconds(CHIP)
    own = serial.link_seconds(CHIP, "own") - parallel.link_seconds(CHIP, "own")
    token = LARGE.seconds / LARGE.steps
    return [
        {
            "what": "ms a token that int8 weights save, batch 64",
            "published": (BF16_TOKEN - INT8_TOKEN) * 1e3,
            "model": (wide - narrow) * 1e3,
        },
        {
            "what": "% of a step that a serial block adds, batch 512",
            "published": SERIAL * 100,
            "model": every / token * 100,
        },
        {"what": "the same over own links", "published": SERIAL * 100, "model": own / token * 100},
    ]


def contexts() -> list[dict[str, Any]]:
    """Table 1."""
    found = []
    for name, attention, model, published in CONTEXTS:
        for batch, tokens in published.items():
            layout = Layout(Mesh(4, 4, 4), "ws-2d", attention)
            held = max_context(model, layout, CHIP, batch=batch, share=CACHE_SHARE)
            found.append({"variant": name, "batch": batch, "published": tokens, "model": held})
    return found


def choices() -> list[dict[str, Any]]:
    """The layout that the model takes at each batch, for PaLM 540B on 64 chips; a row where it changes."""
    found = []
    for kind, tokens, items in (("decode", 1, DECODE.items), ("prefill", 2048, LARGE.items)):
        for links in LINKS:
            search = LayoutSearch(LARGE.model, CHIP, (LARGE.mesh,), items, links=links)
            for batch, step in search.crossovers([2**i for i in range(10)], context=2048, tokens=tokens):
                layout = f"{step.layout.feedforward} {step.layout.attention}"
                found.append({"kind": kind, "links": links, "batch": batch, "layout": layout, "seconds": search.seconds(step)})
    return found


@click.command(help=__doc__.partition("\n\n")[0], epilog="Example: python -m scripts.palm --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(as_json: bool) -> None:
    result = {
        "chip": CHIP.name,
        "runs": [compare(run) for run in RUNS],
        "differences": differences(),
        "contexts": contexts(),
        "choices": choices(),
    }
    if as_json:
        print(json.dumps(result, indent=1))
        return
    tell(result)


def tell(result: dict[str, Any]) -> None:
    console = Console(width=None if Console().is_terminal else 140, highlight=False)
    runs = [(f"{i} {r['run']}", r) for i, r in enumerate(result["runs"], 1)]
    names = ("hidden", "exposed", "own links")
    _table(
        console,
        "Published and analytical seconds (and the ratio of the latter to the former); MFU. A run is model, kind and batch",
        ("run", "weights", "layout", "published", *names, "MFU", "exposed"),
        [
            [
                name,
                r["weights"],
                r["layout"].replace("attention by ", "").replace(",", ""),
                f"{r['published_s']:g}",
                *(f"{r['model_s'][n]:.3g} ({r['model_over_published'][n]:.2f})" for n in names),
                f"{r['published_mfu']:.0%}",
                f"{r['model_mfu']['exposed']:.0%}",
            ]
            for name, r in runs
        ],
    )
    parts = tuple(result["runs"][0]["parts_s"])
    _table(
        console,
        'Where the analytical seconds go, and what "own links" leaves of the published ones',
        ("run", *parts, "GB", "left", "us/layer", "collectives", "us each"),
        [
            [
                name,
                *(f"{r['parts_s'][part]:.3g}" for part in parts),
                f"{r['memory_gb']:.1f}",
                f"{r['left_s']:.3g}",
                f"{r['left_us_a_layer']:,.0f}",
                f"{r['collectives']:,}",
                f"{r['left_us_a_collective']:,.1f}",
            ]
            for name, r in runs
        ],
    )
    for name, r in runs:
        console.print(f"{name}: {r['why']}")
    _table(
        console,
        "\nDifferences between published runs: what both lack cancels",
        ("what", "published", "model", "ratio"),
        [
            [d["what"], f"{d['published']:.1f}", f"{d['model']:.1f}", f"{d['model'] / d['published']:.2f}"]
            for d in result["differences"]
        ],
    )
    _table(
        console,
        f"Tokens of context that {CACHE_SHARE:.0%} of memory holds (table 1)",
        ("variant", "batch", "published", "model", "ratio"),
        [
            [c["variant"], f"{c['batch']}", f"{c['published']:,}", f"{c['model']:,}", f"{c['model'] / c['published']:.3f}"]
            for c in result["contexts"]
        ],
    )
    _table(
        console,
        "Quickest layouts, exposed (540B, 4x4x4)",
        ("kind", "links", "from batch", "layout", "seconds"),
        [[c["kind"], c["links"], f"{c['batch']}", c["layout"], f"{c['seconds']:.3g}"] for c in result["choices"]],
    )


def _table(console: Console, title: str, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    view = Table(title=title)
    for i, column in enumerate(columns):
        view.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        view.add_row(*row)
    console.print(view)


if __name__ == "__main__":
    cli.run(main)
