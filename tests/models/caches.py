"""Random sequences in a KV cache, and what attention over them must give (`tests.oracle.attention`, float64).

Only the public operations write and attend are used, so the layout inside a pool is free to change.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from models.attention import Rule
from models.config.hf_config import from_hf
from models.config.model_config import ModelConfig
from models.kv_cache import ContiguousKV, PagedKV
from models.segment import Segment
from tests import oracle
from tests.compiling import UNOPTIMISED
from tests.models import checkpoints

KV = PagedKV | ContiguousKV
NAN = float("nan")
# Histories, rows, tables and pools are padded to these sizes, so that tests share programs: compiling is what costs here.
LONGEST, ROWS = 320, 10


def config(heads: int = 4, kv_heads: int = 2, head_dim: int = 8, layers: int = 2) -> ModelConfig:
    shape: dict[str, Any] = {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "num_hidden_layers": layers,
    }
    return from_hf(checkpoints.hf_config(**shape))


def filled(kv: KV, value: float) -> KV:
    """The same cache with every stored number replaced."""

    def fill(a: jax.Array) -> jax.Array:
        bits = np.asarray(value, ml_dtypes.bfloat16).view(np.uint16) if a.dtype == jnp.uint16 else np.asarray(value, a.dtype)
        return jnp.full_like(a, bits)

    return jax.tree.map(fill, kv)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows of random q, k and v, f32 [row][heads, length, head_dim]; row i attends with its last `counts[i]` tokens.

    A row of length 0 is padding. `table` i32 [rows, width] says where each row lives.
    """

    q: list[np.ndarray]
    k: list[np.ndarray]
    v: list[np.ndarray]
    counts: list[int]
    query: int
    table: np.ndarray

    @classmethod
    def random(cls, c: ModelConfig, lengths: Sequence[int], query: int, table: np.ndarray, seed: int = 0) -> Batch:
        draw = np.random.default_rng(seed)

        def rows(heads: int) -> list[np.ndarray]:
            return [draw.standard_normal((heads, n, c.head_dim)).astype(np.float32) for n in lengths]

        counts = [min(query, n) for n in lengths]
        return cls([2 * q for q in rows(c.heads)], rows(c.kv_heads), rows(c.kv_heads), counts, query, table)

    @property
    def lengths(self) -> list[int]:
        return [k.shape[1] for k in self.k]

    def segment(self, first: Sequence[int], counts: Sequence[int], query: int) -> Segment:
        tokens = np.zeros((len(self.k), query), np.int32)
        return Segment(tokens, np.array(first, np.int32), np.array(counts, np.int32), self.table)

    def last(self) -> Segment:
        """The segment of the last tokens of each row, which attend."""
        first = [n - count for n, count in zip(self.lengths, self.counts, strict=True)]
        return self.segment(first, self.counts, self.query)

    def tokens(self, rows: list[np.ndarray], segment: Segment) -> jax.Array:
        """Tokens of a segment as write and attend want them, [rows * query, heads, head_dim]; padding is NaN."""
        heads, _, d = rows[0].shape
        out = np.full((segment.rows, segment.query, heads, d), NAN, np.float32)
        for i, (row, start, count) in enumerate(zip(rows, segment.start, segment.count, strict=True)):
            out[i, :count] = row[:, start : start + count].swapaxes(0, 1)
        return jnp.asarray(out.reshape(-1, heads, d))

    def write(self, kv: KV, layer: int = 0, *, twice: bool = False) -> KV:
        """All tokens of all rows at once; or, `twice`, what comes before the last segment and then the last segment."""
        first = [n - count for n, count in zip(self.lengths, self.counts, strict=True)] if twice else self.lengths
        kv = self.write_segment(kv, self.segment([0] * len(first), first, LONGEST), layer)
        return self.write_segment(kv, self.last(), layer) if twice else kv

    def write_segment(self, kv: KV, segment: Segment, layer: int = 0) -> KV:
        return _write(kv, layer, self.tokens(self.k, segment), self.tokens(self.v, segment), segment)

    def attend(self, kv: KV, rule: Rule, layer: int = 0, *, traced: bool = False) -> list[np.ndarray]:
        """What each row's last tokens get, [heads, count, head_dim]. With `traced` the window is an argument, as under scan."""
        segment = self.last()
        q = jnp.nan_to_num(self.tokens(self.q, segment))  # a NaN in a padding query is that query's own affair
        if traced:
            mixed = _attend_within(kv, layer, q, segment, dataclasses.replace(rule, window=None), jnp.int32(rule.window))
        else:
            mixed = _attend(kv, layer, q, segment, rule)
        out = np.asarray(mixed).reshape(segment.rows, segment.query, *q.shape[1:])
        return [out[i, :count].swapaxes(0, 1) for i, count in enumerate(self.counts)]

    def expected(self, rule: Rule, stored: Any = np.float32) -> list[np.ndarray]:
        """The definition, over k and v as rounded to the dtype that they are stored in."""
        assert not isinstance(rule.window, jax.Array)
        out = []
        for q, k, v, count in zip(self.q, self.k, self.v, self.counts, strict=True):
            at = np.arange(q.shape[1])[q.shape[1] - count :]
            k, v = k.astype(stored).astype(np.float64), v.astype(stored).astype(np.float64)
            out.append(oracle.attention(q[:, at], k, v, at, scale=rule.scale, window=rule.window, softcap=rule.softcap))
        return out


@functools.partial(jax.jit, static_argnums=1, compiler_options=UNOPTIMISED)
def _write(kv: KV, layer: int, k: jax.Array, v: jax.Array, segment: Segment) -> KV:
    return kv.write(layer, k, v, segment)


@functools.partial(jax.jit, static_argnums=(1, 4), compiler_options=UNOPTIMISED)
def _attend(kv: KV, layer: int, q: jax.Array, segment: Segment, rule: Rule) -> jax.Array:
    return kv.attend(layer, q, segment, rule)


@functools.partial(jax.jit, static_argnums=(1, 4), compiler_options=UNOPTIMISED)
def _attend_within(kv: KV, layer: int, q: jax.Array, segment: Segment, rule: Rule, window: jax.Array) -> jax.Array:
    return kv.attend(layer, q, segment, dataclasses.replace(rule, window=window))


def padded(lengths: Sequence[int]) -> list[int]:
    """With rows of padding up to `ROWS`."""
    return [*lengths, *[0] * (ROWS - len(lengths))]


def error(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest error of any row, relative to the largest value there; infinite where a number is not finite."""
    return max(oracle.relative(a, b) for a, b in zip(found, expected, strict=True) if b.size)


def pages(lengths: Sequence[int], page: int, *, seed: int = 0) -> tuple[np.ndarray, int]:
    """Deal out pages in random order -> (table i32 [rows, width], pages in the pool). Entries past a row's pages name no page.

    The table and the pool are as large as rows of `LONGEST` tokens need, whatever `lengths` are.
    """
    need = [-(-n // page) for n in lengths]
    width = -(-LONGEST // page)
    units = width * len(need) + 2
    order = np.random.default_rng(seed).permutation(units)
    table = np.full((len(lengths), width), units + 5, np.int32)
    for i, n in enumerate(need):
        table[i, :n], order = order[:n], order[n:]
    return table, units
