"""A step on several chips as values: what one chip holds, multiplies, reads and sends, stage by stage, and the seconds that takes.

`costmodel.parallel.stages.sharded_step` makes them. All figures are per chip and analytical.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from costmodel.hardware.chips import Chip
from costmodel.parallel.layouts import Layout
from costmodel.parallel.shares import Memory
from models.errors import UserError

Overlap = Literal["full", "none"]
Links = Literal["all", "own"]


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A collective that a layout calls for, `runs` times in a step.

    `buffer` is the larger side of it on one chip in B (what one chip holds, for an all-to-all); `group` is the chips that take part.
    """

    kind: str
    what: str
    axes: str
    group: int
    buffer: float
    runs: int

    @property
    def link_bytes(self) -> float:
        """B that leave one chip in all runs: buffer (K - 1) / K each, in a ring or directly; an all-reduce does it twice.

        Source: Pope et al. 2022, appendix A.1.
        """
        return self.buffer * (self.group - 1) / self.group * (2 if self.kind == "all-reduce" else 1) * self.runs


@dataclasses.dataclass(frozen=True)
class Stage:
    """One part of all layers of a step, on one chip: FLOP, B through memory by kind of data, and what its links carry."""

    name: str
    flops: float = 0.0
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    activation_bytes: float = 0.0
    exchanges: tuple[Exchange, ...] = ()

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def link_bytes(self) -> float:
        return sum(c.link_bytes for c in self.exchanges)


@dataclasses.dataclass(frozen=True)
class ShardedStep:
    """A step in one layout. `tokens` counts the new tokens of all sequences together."""

    layout: Layout
    tokens: int
    stages: tuple[Stage, ...]
    memory: Memory

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        return tuple(c for stage in self.stages for c in stage.exchanges)

    @property
    def flops(self) -> float:
        return sum(stage.flops for stage in self.stages)

    @property
    def bytes(self) -> float:
        return sum(stage.bytes for stage in self.stages)

    @property
    def link_bytes(self) -> float:
        return sum(stage.link_bytes for stage in self.stages)

    def fits(self, chip: Chip) -> bool:
        return self.memory.total <= chip.memory

    def link_seconds(self, chip: Chip, links: Links = "all", stage: Stage | None = None) -> float:
        """Seconds that the links of a chip are busy, in one stage or in all.

        Args:
          links: "all" lets every collective use all links of a chip, as the paper's formulas do and as a switch allows; "own" only
            those along its mesh axes, which is what a torus offers to a collective over one axis.

        Raises:
          UserError: there is something to send and the chip has no link bandwidth.
        """
        share = self.layout.mesh.share_of_links
        sent = sum(
            c.link_bytes / (share(c.axes) if links == "own" else 1.0)
            for c in (self.exchanges if stage is None else stage.exchanges)
        )
        if not sent:
            return 0.0
        if chip.link_bandwidth is None:
            raise UserError(f"chip {chip.name}: no link bandwidth is known, which several chips need; pick another chip")
        return sent / chip.link_bandwidth

    def stage_seconds(
        self, chip: Chip, stage: Stage, *, overlap: Overlap, links: Links = "all", dtype: str = "bfloat16"
    ) -> float:
        """Seconds of one stage. Arithmetic and memory overlap; links with both of them ("full"), or with neither ("none")."""
        local = max(stage.flops / chip.peak(dtype), stage.bytes / chip.bandwidth)
        moving = self.link_seconds(chip, links, stage)
        return max(local, moving) if overlap == "full" else local + moving

    def seconds(self, chip: Chip, *, overlap: Overlap, links: Links = "all", dtype: str = "bfloat16") -> float:
        """Seconds of the step: its stages one after another, at the chip's peaks.

        Args:
          overlap: "full" is section 3.5 at its best, every collective hidden behind its own matmul; "none" is a schedule of one
            after the other. A program whose kernels reach the peaks lies between; a real one may well lie above both.
          links: see `link_seconds`.
          dtype: of the operands of matmuls. Int8 weights that are widened to bf16 multiply at the bf16 peak (section 3.6).
        """
        return sum(self.stage_seconds(chip, stage, overlap=overlap, links=links, dtype=dtype) for stage in self.stages)
