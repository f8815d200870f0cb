"""What the programs of an engine run, padding included: more than a plan asks for, and what their time follows from.

A program multiplies every row and token that it was compiled for, and its attention loop takes all rows as far as the longest one has come,
a block at a time (`models.attention.blockwise`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costmodel.analytical.features import coefficients
from costmodel.arch.architecture import Architecture
from costmodel.hardware.chip import Chip
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import Run, dispatch
from jaxserve.scheduling.plan import Plan
from models.attention import block_tokens
from models.segment import Segment

# Rows that a matmul of several rows is padded to: the inner loops of Eigen, which XLA calls on a CPU, take four of them at once (nr of its
# `gebp_traits`), so two rows cost what four do. One row is another kernel (gemv).
TILE = 4


class Figures(NamedTuple):
    """Of one program, or of several together; the features of `costmodel.calibration.engine_step`.

    Attributes:
      programs: that run.
      weights: B that they read.
      packed: those of them that several rows are multiplied with.
      flops: of matmuls, whole tiles of rows.
      moved: B of activations, and of K and V written.
      samples: tokens that are drawn, for padding too.
      cache: B of K and V fetched.
      attention: FLOP over them.
      turns: of attention loops, over all layers.
    """

    programs: float
    weights: float
    packed: float
    flops: float
    moved: float
    samples: float
    cache: float
    attention: float
    turns: float


class Executed:
    """Counts what runs of a ladder's programs do. Paged KV, blockwise attention.

    Args:
      dtype, kv_dtype: of weights and cache.
    """

    def __init__(self, architecture: Architecture, ladder: Buckets, *, dtype: str = "float32", kv_dtype: str | None = None):
        self.ladder, self._experts = ladder, architecture.experts
        self._windows = tuple(dict.fromkeys(architecture.windows))
        self._layers = [architecture.windows.count(window) for window in self._windows]
        # On a chip of 1 B/s and 1 FLOP/s the coefficients are bytes and FLOPs.
        names = ("bfloat16", "float16", "float32", "float8", "int8", "int4")
        unit = Chip("unit", 1.0, 1.0, dict.fromkeys(names, 1.0), "units of measurement")
        self._bytes, self._flops, _ = coefficients(architecture, unit, dtype=dtype, kv_dtype=kv_dtype)
        self._blocks: dict[tuple[int, int], int] = {}

    def plan(self, plan: Plan) -> list[Figures]:
        """Of every program of a plan. A repeated decode is taken to run as often as it may."""
        return [self.run(run, step) for run in dispatch(plan, self.ladder) for step in range(run.steps)]

    def run(self, run: Run, step: int = 0) -> Figures:
        """Of one program, in its repetition number `step`."""
        bucket = run.bucket
        assert bucket is not None
        query = bucket.shape[0][1]
        tokens, samples = bucket.tokens, sum(rows for rows, _ in bucket.shape)
        if bucket.verify:
            samples += bucket.shape[0][0] * (query - 1)
        met = float(self._experts.distinct(tokens)) if self._experts else 0.0
        fixed, expert, token, sample, *attention = self._bytes
        _, expert_flops, token_flops, sample_flops, *attention_flops = self._flops
        cache = products = turns = 0.0
        entering = 0
        for i, (rows, each) in enumerate(bucket.shape):
            decodes = i == 0 and (each == 1 or bucket.verify)
            live = self._live(run, step) if decodes else [(piece.start, piece.tokens) for piece in run.pieces]
            entering += sum([count for _, count in live])
            at = 1 if decodes else 2 + 2 * len(self._windows)
            for window, layers in zip(self._windows, self._layers, strict=True):
                read, loops = self._loop(rows, each, live, window)
                cache += attention[at] * read
                products += attention_flops[at + 1] * read * each
                turns += loops * layers
                at += 2
        moved = token * tokens + sample * samples + attention[0] * entering
        flops = token_flops * tiled(tokens) + sample_flops * tiled(samples) + expert_flops * met
        weights = fixed + expert * met
        return Figures(1.0, weights, weights if tokens > 1 else 0.0, flops, moved, float(samples), cache, products, turns)

    def _live(self, run: Run, step: int) -> list[tuple[int, int]]:
        """(tokens in the cache before, tokens to run) of rows that decode or verify."""
        if run.counts is None:
            return [(start + step, 1) for start in run.starts]
        return list(zip(run.starts, run.counts, strict=True))

    def _loop(self, rows: int, query: int, live: list[tuple[int, int]], window: int | None) -> tuple[int, int]:
        """(cached tokens fetched by all rows, turns) of the loop of a layer."""
        if not live:
            return 0, 0
        block = self._block(rows, query)
        stop = -(-max([start + count for start, count in live]) // block)
        first = 0 if window is None else max(min([start for start, _ in live]) - window + 1, 0) // block
        return rows * (stop - first) * block, stop - first

    def _block(self, rows: int, query: int) -> int:
        """Tokens of a block, whole pages (`models.kv_cache.PagedKV.block`)."""
        if (rows, query) not in self._blocks:
            nothing = np.zeros(rows, np.int32)
            tokens = block_tokens(Segment(np.zeros((rows, query), np.int32), nothing, nothing, np.zeros((rows, 1), np.int32)))
            self._blocks[rows, query] = -(-tokens // self.ladder.page) * self.ladder.page
        return self._blocks[rows, query]


def tiled(rows: int) -> int:
    """Rows that a matmul multiplies."""
    return rows if rows <= 1 else -(-rows // TILE) * TILE


def rows_of(bucket: Bucket) -> tuple[int, int]:
    """(rows that decode or verify, pieces of prompts) of a program."""
    first = bucket.shape[0][0] if bucket.verify or bucket.shape[0][1] == 1 else 0
    return first, sum(rows for rows, _ in bucket.shape) - first
