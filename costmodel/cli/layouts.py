"""`python -m costmodel layouts`: how a step may be split over several chips, what each layout holds, sends and takes, and which wins."""

from __future__ import annotations

from typing import Any

from costmodel.cli.choices import choose_chip, choose_model
from costmodel.cli.output import Output, giga, table
from costmodel.hardware.chip import Chip
from costmodel.parallel.layouts import Layout, Mesh
from costmodel.parallel.partitioning import LayoutSearch, max_context
from costmodel.parallel.sharded import Links, Overlap, ShardedStep
from costmodel.terminal.tables import Table
from models.errors import UserError

SHARE = 0.3  # of a chip's memory that the cache gets where the longest context is asked for (Pope et al. 2022, table 1)
COLUMNS = ("layout", "attention", "mesh", "GB a chip", "sent MB", "ms", "bound by", "longest context")
NOTE = (
    "analytical (Pope et al. 2022, section 3): GB a chip = weights, KV and activations; sent = bytes that leave one chip in a step; "
    f"ms at the chip's peaks; longest context = tokens of each sequence where KV gets {SHARE:.0%} of the memory"
)


def run(
    *,
    model: str,
    chip: str,
    chips: int,
    mesh: str | None,
    batch: int,
    context: int,
    prompt: int,
    overlap: Overlap,
    links: Links,
    top: int,
    as_json: bool,
) -> Output:
    """The quickest layouts of a decode step and of a prefill.

    Raises:
      UserError: no such model or chip, a mesh of another number of chips, or no layout that divides and fits.
    """
    chosen, on = choose_model(model).architecture, choose_chip(chip).chip
    if chosen.latent is not None or chosen.experts is not None:
        raise UserError(
            f"--model {chosen.name} has experts or a latent cache, whose layouts are not known here; take a dense model"
        )
    meshes = (Mesh.parse(mesh, chips),) if mesh else tuple(Mesh.all_of(chips))
    search = LayoutSearch(chosen, on, meshes, overlap=overlap, links=links)
    found = {
        "decode": search.layouts(batch=batch, context=context),
        "prefill": search.layouts(batch=batch, context=prompt, tokens=prompt),
    }
    rows = {kind: [_row(search, step, batch) for step in _one_a_kind(steps)[:top]] for kind, steps in found.items()}
    head = (
        f"{chosen.name} on {chips} x {on.name}, {batch} sequences; meshes: {mesh or 'every one'}; overlap of links: {overlap}"
    )
    titles = {"decode": f"a decode step at context {context:,}", "prefill": f"a prefill of {prompt:,} tokens each"}
    parts: list[str | Table] = [head]
    for kind, each in rows.items():
        parts.append(table(f"{titles[kind]}, quickest first (analytical)", COLUMNS, [_cells(row) for row in each], left=3))
    both = rows["decode"][0]["layout"] == rows["prefill"][0]["layout"]
    says = "one layout wins for both" if both else "another layout wins for each: weights rest alike, so one copy serves both"
    parts += [f"decode: {rows['decode'][0]['layout']}; prefill: {rows['prefill'][0]['layout']}: {says}", NOTE]
    data = {"model": chosen.name, "chip": on.name, "chips": chips, "batch": batch, "context": context, "prompt": prompt,
            "overlap": overlap, "links": links, "witness": "analytical", **rows}  # fmt: skip
    return Output(data, parts, (), "json" if as_json else "text")


def _one_a_kind(steps: list[ShardedStep]) -> list[ShardedStep]:
    """The quickest mesh of each pair of feed-forward and attention layout; of those that split alike one."""
    seen: dict[tuple[str, str], ShardedStep] = {}
    splits = set[tuple[int, int, int, str]]()
    for step in steps:
        layout = step.layout
        kind, split = (layout.feedforward, layout.attention), (layout.data, layout.hidden, layout.width, layout.attention)
        if kind not in seen and split not in splits:
            seen[kind] = step
            splits.add(split)
    return list(seen.values())


def _row(search: LayoutSearch, step: ShardedStep, batch: int) -> dict[str, Any]:
    layout, chip = step.layout, search.chip
    return {
        "layout": layout.feedforward,
        "attention": layout.attention,
        "mesh": str(layout.mesh),
        "memory_bytes": float(step.memory.total),
        "link_bytes": float(step.link_bytes),
        "seconds": float(search.seconds(step)),
        "bound": _bound(step, chip, search.links),
        "max_context": _longest(search, layout, batch),
    }


def _bound(step: ShardedStep, chip: Chip, links: Links) -> str:
    """What takes longest of all stages together."""
    seconds = {
        "compute": step.flops / float(chip.peak("bfloat16")),
        "memory": step.bytes / float(chip.bandwidth),
        "links": step.link_seconds(chip, links),
    }
    return max(seconds, key=lambda name: seconds[name])


def _longest(search: LayoutSearch, layout: Layout, batch: int) -> int:
    return max_context(search.model, layout, search.chip, batch=batch, share=SHARE, items=search.items)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["layout"],
        row["attention"],
        row["mesh"],
        giga(row["memory_bytes"]),
        f"{row['link_bytes'] / 1e6:,.1f}",
        f"{row['seconds'] * 1e3:.3f}",
        row["bound"],
        f"{row['max_context']:,}",
    ]
