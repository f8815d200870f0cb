"""Drives `jaxserve.programs.step.Step` by hand: sequences, the pages they own, and one call per step. No programs, no scheduler."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence as Many
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxserve.programs.sampling import RowSampling
from jaxserve.programs.step import Step, Work
from jaxserve.sampling_params import SamplingParams
from models.config.model_config import ModelConfig
from models.forward import serving
from models.kv_cache import ContiguousKV, PagedKV
from models.layers import KV, stack_layers
from models.segment import Segment
from tests.oracle import Weights

GREEDY = SamplingParams()


@dataclasses.dataclass
class Sequence:
    """One request: its tokens so far, how many of them are cached, and the pages (or the slot) that it owns."""

    tokens: list[int]
    pages: list[int]
    sampling: SamplingParams = GREEDY
    cached: int = 0


@dataclasses.dataclass
class Rows:
    """One segment of a step: row i feeds the next `count` tokens of `rows[i]`; None is a padding row."""

    rows: Many[Sequence | None]
    query: int = 1
    counts: Many[int] | None = None  # `query` for each live row by default

    def count(self, i: int) -> int:
        return 0 if self.rows[i] is None else self.query if self.counts is None else self.counts[i]


class Driver:
    """A pool that starts out as NaN everywhere, so that whatever reads a free page or an unwritten slot shows it.

    Args:
      config, weights: the model.
      context: tokens that a sequence can hold.
      sequences: how many sequences the pool has room for.
      page: tokens of a page; for a `ContiguousKV` a slot holds `context` tokens.
      kind, dtype, options: of the cache, see `PagedKV.zeros`.
      fill: what the pool starts with; NaN unless a test wants to compare.
      shuffle: seed by which pages are dealt out; any deal must give the same numbers.
      scanned: the layers are one scan over stacked weights and one pool, not unrolled.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        *,
        context: int = 64,
        sequences: int = 1,
        page: int = 4,
        kind: type[PagedKV] | type[ContiguousKV] = PagedKV,
        dtype: Any = jnp.float32,
        fill: float = float("nan"),
        shuffle: int = 0,
        every_token: bool = False,
        scanned: bool = False,
        **options: Any,
    ):
        paged = kind is PagedKV
        self.width = -(-context // page) if paged else 1
        units = sequences * self.width + 1  # the last is nobody's: padding rows point at it
        self.kv: KV = kind.zeros(config, units, page if paged else context, dtype, stacked=scanned, **options)
        self.kv = jax.tree.map(lambda a: jnp.full_like(a, _stored(fill, a.dtype)), self.kv)
        self.free = np.random.default_rng(shuffle).permutation(units - 1).tolist()
        self.nobody = units - 1
        graph, state = stack_layers(config, dict(nnx.to_flat_state(weights[1]))) if scanned else weights
        self.serving = serving(config, state, context)
        self.pure = Step(graph, config, every_token=every_token, with_logits=True, stacked=scanned)
        self._step = _jitted(self.pure)

    def sequence(self, tokens: Many[int], sampling: SamplingParams = GREEDY) -> Sequence:
        pages = [self.free.pop() for _ in range(self.width)]
        return Sequence(list(tokens), pages, sampling)

    def work(self, segment: Rows) -> Work:
        """The segment as arrays; padding is filled with values that would be seen if they were used."""
        rows = len(segment.rows)
        tokens, table = np.full((rows, segment.query), 1, np.int32), np.full((rows, self.width), self.nobody, np.int32)
        start, count = np.full(rows, 3, np.int32), np.zeros(rows, np.int32)
        for i, s in enumerate(segment.rows):
            if s is None:
                continue
            start[i], count[i], table[i] = s.cached, segment.count(i), s.pages
            part = s.tokens[s.cached : s.cached + count[i]]
            assert len(part) == count[i], "a row is asked for more tokens than its sequence has"
            tokens[i, : count[i]] = part
        sampling = RowSampling.of([GREEDY if s is None else s.sampling for s in segment.rows])
        return Work(Segment(tokens, start, count, table), sampling)

    def step(self, *segments: Rows) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Run one step.

        Returns:
          For each segment and row (logits f32 [sampled, vocab], tokens i32 [sampled]); empty arrays for a padding row. With
          every_token, only those of live tokens.
        """
        self.kv, outputs = self._step(self.serving, self.kv, tuple(self.work(s) for s in segments))
        results = []
        for segment, output in zip(segments, outputs, strict=True):
            rows, sampled = output.tokens.shape
            logits = np.asarray(output.logits).reshape(rows, sampled, -1)
            live = [min(segment.count(i), sampled) for i in range(rows)]
            results.append([(logits[i, :n], np.asarray(output.tokens)[i, :n]) for i, n in enumerate(live)])
            for i, s in enumerate(segment.rows):
                if s is not None:
                    s.cached += segment.count(i)
        return results

    def prefill(self, s: Sequence, chunk: int | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """All tokens that are not cached yet, in chunks of `chunk` (the last one padded) -> the row's result of each chunk."""
        chunk = chunk or len(s.tokens) - s.cached
        results = []
        while s.cached < len(s.tokens):
            results += self.step(Rows([s], chunk, [min(chunk, len(s.tokens) - s.cached)]))[0]
        return results

    def decode(self, rows: Many[Sequence | None], steps: int, feed: bool = True) -> list[list[np.ndarray]]:
        """Each live row's one uncached token, `steps` times; appends what is sampled -> logits [vocab] of each row and step.

        With `feed` off the tokens of the sequences are taken as they are (teacher forcing).
        """
        seen: list[list[np.ndarray]] = [[] for _ in rows]
        for _ in range(steps):
            (results,) = self.step(Rows(rows))
            for i, s in enumerate(rows):
                if s is not None:
                    seen[i].append(results[i][0][0])
                    if feed:
                        s.tokens.append(int(results[i][1][0]))
        return seen


@functools.cache
def _jitted(step: Step) -> Any:
    """One jitted function a step, so that tests of one model and shape share a program: compiling is what costs here."""
    return jax.jit(step, donate_argnums=1)


def _stored(fill: float, dtype: Any) -> Any:
    """What a pool of `dtype` holds for `fill`: 16-bit pools keep the bits of a bfloat16."""
    if dtype == jnp.uint16:
        return np.asarray(fill, jnp.bfloat16).view(np.uint16)
    return np.asarray(fill, dtype)
