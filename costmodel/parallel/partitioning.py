"""Which layout to run a step in, and how much context each can hold (Pope et al. 2022, sections 3 and 4.2).

A layout that wins at one batch loses at another: weight-stationary moves activations, which grow with the tokens of the step, and
weight-gathered moves weights, which do not. Attention by batch divides the cache among all chips but needs a sequence for each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from costmodel.arch.architecture import Architecture
from costmodel.hardware.chip import Chip
from costmodel.parallel.layouts import ATTENTION, FEEDFORWARD, Layout, Mesh
from costmodel.parallel.sharded import Links, Overlap, ShardedStep
from costmodel.parallel.shares import BF16, Itemsizes, Share
from costmodel.parallel.stages import sharded_step
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class LayoutSearch:
    """What a layout is chosen for, besides the step: a model on chips, and how its time is counted.

    Attributes:
      meshes: those to choose from: the one that a slice of a torus has, or every factorisation where a switch joins the chips
        (`Mesh.all_of`).
      items: bytes of an element.
      overlap, links, dtype: as in `ShardedStep.seconds`.
    """

    model: Architecture
    chip: Chip
    meshes: tuple[Mesh, ...]
    items: Itemsizes = BF16
    overlap: Overlap = "none"
    links: Links = "all"
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        if not self.meshes:
            raise UserError("layout search: there is no mesh to choose from; give at least one")
        if len({mesh.chips for mesh in self.meshes}) > 1:
            raise UserError(
                f"layout search: meshes {', '.join(map(str, self.meshes))} differ in their number of chips; give one number"
            )

    def seconds(self, step: ShardedStep) -> float:
        return step.seconds(self.chip, overlap=self.overlap, links=self.links, dtype=self.dtype)

    def layouts(self, *, batch: int, context: float, tokens: int = 1) -> list[ShardedStep]:
        """The step in every layout that divides and fits the chip's memory, quickest first.

        Raises:
          UserError: no layout divides, or none fits; names the nearest.
        """
        steps, refusals = [], []
        for mesh in self.meshes:
            for feedforward in FEEDFORWARD:
                for attention in ATTENTION:
                    layout = Layout(mesh, feedforward, attention)
                    try:
                        layout.check(self.model, batch)
                    except UserError as refusal:
                        refusals.append(refusal)
                        continue
                    steps.append(
                        sharded_step(self.model, layout, batch=batch, context=context, tokens=tokens, items=self.items)
                    )
        chips = self.meshes[0].chips
        if not steps:
            raise UserError(f"no layout of {self.model.name} on {chips} chips divides at batch {batch}; for one, {refusals[0]}")
        fitting = [step for step in steps if step.fits(self.chip)]
        if not fitting:
            least = min(steps, key=lambda step: step.memory.total)
            raise UserError(
                f"{self.model.name} at batch {batch}, context {context:g} fits no layout on {chips} x {self.chip.name}: the leanest, "
                f"{least.layout}, needs {least.memory.total / 1e9:.1f} GB a chip of {self.chip.memory / 1e9:.1f}; take more chips"
            )
        return sorted(fitting, key=self.seconds)

    def best_layout(self, *, batch: int, context: float, tokens: int = 1) -> ShardedStep:
        """The quickest layout that fits. Of equals the first in the order of `FEEDFORWARD`. Raises as `layouts` does."""
        return self.layouts(batch=batch, context=context, tokens=tokens)[0]

    def crossovers(self, batches: Iterable[int], *, context: float, tokens: int = 1) -> list[tuple[int, ShardedStep]]:
        """The first of `batches` and its best layout, then each batch at which another feed-forward or attention layout takes over."""
        found: list[tuple[int, ShardedStep]] = []
        for batch in batches:
            step = self.best_layout(batch=batch, context=context, tokens=tokens)
            if not found or _kind(found[-1][1].layout) != _kind(step.layout):
                found.append((batch, step))
        return found


def max_context(model: Architecture, layout: Layout, chip: Chip, *, batch: int, share: float, items: Itemsizes = BF16) -> int:
    """Tokens of context that each of `batch` sequences can have when the cache gets `share` of every chip's memory (table 1).

    Raises:
      UserError: the layout does not divide, or the share is not in (0, 1].
    """
    if not 0 < share <= 1:
        raise UserError(f"max context: the cache's share of memory is {share}; it must be above 0 and at most 1")
    layout.check(model, batch)
    part = Share(model, layout, batch, 1, 1, items)
    return int(share * chip.memory // part.memory().kv)


def _kind(layout: Layout) -> tuple[str, str]:
    return layout.feedforward, layout.attention
