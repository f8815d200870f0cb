"""What a plan will take: predictors, and the analytical one, quick enough to be asked before every step.

`costmodel.step_cost` is linear in a few figures of a step (`costmodel/analytical/features.py`), so a plan costs sums over its
rows and three inner products. No JAX runs.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from costmodel.analytical.features import StepFeatures, attended, coefficients
from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import as_architecture
from costmodel.arch.deployment import Storage
from costmodel.arch.formats import Format
from costmodel.hardware.chip import Chip
from costmodel.hardware.chips import find_chip
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import Piece, Run, dispatch
from jaxserve.scheduling.plan import Plan
from models.config.model_config import ModelConfig
from models.errors import UserError

Attention = Literal["blockwise", "gather"]


class Predictor(Protocol):
    """Says what a plan will take."""

    def __call__(self, plan: Plan) -> float:
        """Seconds, of a plan that has rows."""


class Roofs(NamedTuple):
    """Seconds of the three things that overlap."""

    memory: Any
    compute: Any
    link: Any


class Analytical:
    """The roofline time of `costmodel.step_cost` (witness: analytical), of a plan as it stands or of the programs that run it.

    Args:
      config, dtype, kv_dtype, tensor_parallel: as of `step_cost`.
      chip: a name or a chip.
      ladder: price the programs that it has for a plan, padding included: a padded row or token is multiplied like any other, and a
        padded row has nothing in the cache. None: the plan is one program without padding.
      attention: "blockwise" reads what rows hold; "gather" reads the whole table of every row of a program, so it needs a ladder.

    Attributes:
      bandwidth: B/s of the chip's memory.

    Raises:
      UserError: as `step_cost`; a cache format with a scale for several tokens.
    """

    def __init__(
        self,
        config: Architecture | ModelConfig | Mapping[str, Any] | str,
        chip: Chip | str,
        *,
        dtype: str | Format | Mapping[str, str | Format] = "bfloat16",
        kv_dtype: str | Format | None = None,
        tensor_parallel: int = 1,
        ladder: Buckets | None = None,
        attention: Attention = "blockwise",
    ):
        if attention == "gather" and ladder is None:
            raise UserError("attention by gather costs what its program's tables are wide; give a ladder")
        architecture = as_architecture(config)
        kv = Storage.of(dtype, kv_dtype).kv
        if kv.scale_bytes and kv.block[0] not in (None, 1):
            raise UserError(
                f"a cache in {kv.name} has a scale for {kv.block[0]} tokens, which is not predicted; take float8 or int8"
            )
        self.ladder, self.attention = ladder, attention
        self._experts = architecture.experts
        self._windows = tuple(dict.fromkeys(architecture.windows))
        self._plain = self._windows == (None,)
        self._nothing = (0,) * (1 + 2 * len(self._windows))
        on = find_chip(chip) if isinstance(chip, str) else chip
        self.bandwidth = float(on.bandwidth)
        self._coefficients = coefficients(architecture, on, dtype=dtype, kv_dtype=kv_dtype, tensor_parallel=tensor_parallel)

    def __call__(self, plan: Plan) -> float:
        """Seconds of all programs of a plan, one after the other. A repeated decode is taken to run as often as it may."""
        return sum([self.seconds(self.run_load(run, i)) for run in dispatch(plan, self.ladder) for i in range(run.steps)])

    def run_load(self, run: Run, step: int = 0) -> StepFeatures:
        """What one program computes, in its repetition number `step`."""
        query = self.ladder.chunk[1] if self.ladder else None
        live = self.load(run.starts, run.counts, run.pieces, more=step, query=query)
        return live if run.bucket is None else self.padded(live, run.bucket)

    def load(
        self,
        starts: Sequence[int],
        counts: Sequence[int] | None,
        pieces: Sequence[Piece],
        *,
        more: int = 0,
        query: int | None = None,
    ) -> StepFeatures:
        """Of live rows.

        Args:
          starts: tokens in the cache of each row that decodes.
          counts: tokens that each of them runs, with a sample after each; None for 1 each.
          pieces: of prompts, each with one sample.
          more: tokens that each row that decodes has more.
          query: tokens that each piece is filled up to; None: no filling.
        """
        rows, windows = len(starts), self._windows
        tokens = rows
        if counts is None:
            if self._plain:
                read = sum(starts) + rows * (more + 1)
                attention = [float(rows), read, read]
            else:
                contexts = np.array(starts, np.float64) + (more + 1)
                seen = [float(contexts.sum() if w is None else np.minimum(contexts, w).sum()) for w in windows]
                attention = [float(rows), *[figure for each in seen for figure in (each, each)]]
        else:
            tokens = sum(counts)
            attention = attended(list(zip(starts, counts, strict=True)), windows)
        if not pieces:
            return StepFeatures(tokens, tokens, (*attention, *self._nothing))
        filled = [(piece.start, query or piece.tokens) for piece in pieces]
        prompts = attended(filled, windows)
        return StepFeatures(tokens + prompts[0], tokens + len(filled), (*attention, *prompts))

    def padded(self, live: StepFeatures, bucket: Bucket) -> StepFeatures:
        """The same rows in a program of the ladder."""
        rows, query = bucket.shape[0]
        if bucket.verify:
            more = rows * (query - 1)
            return self.shaped(live, rows, sum(rows for rows, _ in bucket.shape[1:]), bucket.width, verified=more)
        decodes = rows if query == 1 else 0
        return self.shaped(live, decodes, sum(rows for rows, _ in bucket.shape) - decodes, bucket.width)

    def shaped(self, live: StepFeatures, rows: Any, pieces: Any, width: Any, *, verified: Any = 0) -> StepFeatures:
        """The same rows in a program with `rows` rows that decode and `pieces` for prompts, numbers or arrays of them.

        Args:
          width: pages of a table.
          verified: drafts that it runs beside, over all rows.
        """
        assert self.ladder is not None
        query, held = self.ladder.chunk[1], width * self.ladder.page
        tokens, samples = rows + verified + pieces * query, rows + verified + pieces
        if self.attention == "blockwise":
            return StepFeatures(tokens, samples, live.attention)
        kinds, half = len(self._windows), len(self._nothing)
        decodes = (live.attention[0], *(held * rows, held * (rows + verified)) * kinds)
        return StepFeatures(tokens, samples, (*decodes, live.attention[half], *(held * pieces, held * pieces * query) * kinds))

    def seconds(self, load: StepFeatures) -> float:
        """The longest of the three roofs: memory, arithmetic and links are taken to overlap perfectly."""
        return max(self.roofs(load))

    def roofs(self, load: StepFeatures) -> Roofs:
        """Also of arrays."""
        met = self._experts.distinct(load.tokens) if self._experts else 0.0
        figures = (1.0, met, load.tokens, load.samples, *load.attention)
        memory, compute, link = self._coefficients
        return Roofs(
            sum(map(operator.mul, memory, figures)),
            sum(map(operator.mul, compute, figures)),
            sum(map(operator.mul, link, figures)) if link else 0.0,
        )
