"""The KV cache as a value: two pytrees, `PagedKV` and `ContiguousKV`, with the same two pure operations, write and attend.

A cache is an argument of the step and is donated to it, so a write updates the pool in place. 16-bit pools are kept as uint16 and
reinterpreted at the edge: XLA's CPU backend would upcast a bfloat16 pool, whole, at every write.

A page is [page, kv_heads, head_dim], so that a write is one piece and a gather feeds a matmul as it is. On a CPU heads lie outside
tokens and K transposed, [kv_heads, head_dim, page], as its matmuls read fastest (see `attention.py`).
"""

from __future__ import annotations

import dataclasses
from typing import Self

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from models.attention import Fetch, Rule, block_range, block_tokens, blockwise, reference
from models.config.model_config import ModelConfig
from models.segment import Segment


@dataclasses.dataclass(frozen=True)
class _Pools:
    """What both caches share: one array a layer, or one for all layers (under scan), and how numbers are stored."""

    keys: tuple[
        jax.Array, ...
    ]  # each [units, unit, kv_heads, head_dim], or [units, kv_heads, head_dim, unit]; a unit is a page or a slot
    values: tuple[jax.Array, ...]  # each [units, unit, kv_heads, head_dim], or [units, kv_heads, unit, head_dim]
    layers: int = dataclasses.field(metadata={"static": True})
    dtype: str = dataclasses.field(metadata={"static": True})  # what is stored: float32 or bfloat16
    compute: str = dataclasses.field(metadata={"static": True})  # what attention multiplies in
    attention: str = dataclasses.field(metadata={"static": True})  # blockwise, or the reference: gather
    heads_first: bool = dataclasses.field(metadata={"static": True})  # heads lie outside tokens, and K transposed

    @classmethod
    def zeros(
        cls,
        config: ModelConfig,
        units: int,
        unit: int,
        dtype: DTypeLike,
        *,
        compute: DTypeLike = jnp.float32,
        stacked: bool = False,
        attention: str = "blockwise",
        heads_first: bool = True,
    ) -> Self:
        """An empty cache of `units` pages (or slots) of `unit` tokens for every layer.

        Args:
          dtype: float32 or bfloat16, what K and V are stored in.
          compute: what attention's products take; float32 on a CPU, bfloat16 on an accelerator.
          stacked: one array for all layers, [layers * units, ...], for a step that scans over layers.
          attention: "blockwise" or "gather", the slow reference.
          heads_first: as suits a CPU. A TPU would fill a tile of 128 with the 16 tokens of a page, and copy the pool to write.
        """
        stored = jnp.uint16 if jnp.dtype(dtype) == jnp.bfloat16 else jnp.dtype(dtype)
        arrays, each = (1, config.layers * units) if stacked else (config.layers, units)
        heads, size = config.kv_heads, config.head_dim
        tokens_first = (each, unit, heads, size)
        k, v = ((each, heads, size, unit), (each, heads, unit, size)) if heads_first else (tokens_first, tokens_first)
        return cls(
            keys=tuple(jnp.zeros(k, stored) for _ in range(arrays)),
            values=tuple(jnp.zeros(v, stored) for _ in range(arrays)),
            layers=config.layers,
            dtype=jnp.dtype(dtype).name,
            compute=jnp.dtype(compute).name,
            attention=attention,
            heads_first=heads_first,
        )

    @property
    def units(self) -> int:
        return self.keys[0].shape[0] * len(self.keys) // self.layers

    @property
    def unit(self) -> int:
        return self.values[0].shape[2 if self.heads_first else 1]

    def _store(self, x: jax.Array) -> jax.Array:
        x = x.astype(self.dtype)
        return jax.lax.bitcast_convert_type(x, jnp.uint16) if self.dtype == "bfloat16" else x

    def _loaded(self, k: jax.Array, v: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What a `Fetch` gives, of stored K and V of n tokens; V is set to 0 where seen, bool [rows, n], says so, whatever lies there.

        As integers, by their bits: a CPU does that in passing, where a select on floats costs as much as reading them.
        """
        bits = jnp.uint16 if v.dtype.itemsize == 2 else jnp.uint32
        mask = -seen.astype(bits)  # all ones or all zeros
        mask = mask[:, None, :, None] if self.heads_first else mask[:, :, None, None]
        kept = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(v, bits) & mask, v.dtype)
        k, v = self._load(k), self._load(kept)
        return (k, v) if self.heads_first else (k.transpose(0, 2, 3, 1), v.swapaxes(1, 2))

    def _load(self, x: jax.Array) -> jax.Array:
        if self.dtype != "bfloat16":
            return x.astype(self.compute)
        if self.compute == "float32":  # a shift is what a CPU vectorises; its bfloat16 conversion is not
            return jax.lax.bitcast_convert_type(x.astype(jnp.uint32) << 16, jnp.float32)
        return jax.lax.bitcast_convert_type(x, jnp.bfloat16).astype(self.compute)

    def _pool(self, layer: int | jax.Array) -> tuple[int, int | jax.Array]:
        """(which array, first unit of the layer in it)."""
        if len(self.keys) > 1 or self.layers == 1:
            assert isinstance(layer, int)
            return layer, 0
        return 0, layer * self.units

    def _scatter(self, layer: int | jax.Array, unit: jax.Array, slot: jax.Array, k: jax.Array, v: jax.Array) -> Self:
        """Write tokens: unit and slot i32 [tokens] (unit >= units: dropped), k and v f32 [tokens, kv_heads, head_dim]."""
        kv_heads, head_dim = self.keys[0].shape[1:3] if self.heads_first else self.keys[0].shape[2:4]
        chex.assert_shape([k, v], (unit.size, kv_heads, head_dim))
        i, first = self._pool(layer)
        at = jnp.where(unit < self.units, unit + first, jnp.iinfo(jnp.int32).max)
        k, v, keys, values = self._store(k), self._store(v), self.keys[i], self.values[i]
        if self.heads_first:
            keys, values = keys.at[at, :, :, slot].set(k, mode="drop"), values.at[at, :, slot, :].set(v, mode="drop")
        else:
            keys, values = keys.at[at, slot].set(k, mode="drop"), values.at[at, slot].set(v, mode="drop")
        return dataclasses.replace(
            self,
            keys=(*self.keys[:i], keys, *self.keys[i + 1 :]),
            values=(*self.values[:i], values, *self.values[i + 1 :]),
        )

    def _grouped(self, q: jax.Array, rows: int) -> jax.Array:
        """q f32 [rows * query, heads, head_dim] -> [rows, kv_heads, group * query, head_dim]."""
        tokens, heads, d = q.shape
        kv_heads = self.keys[0].shape[1 if self.heads_first else 2]
        q = q.reshape(rows, tokens // rows, kv_heads, heads // kv_heads, d)
        return q.transpose(0, 2, 3, 1, 4).reshape(rows, kv_heads, -1, d)

    def _ungrouped(self, o: jax.Array, query: int) -> jax.Array:
        """The inverse of `_grouped`: -> f32 [rows * query, heads, head_dim]."""
        rows, kv_heads, grouped, d = o.shape
        o = o.reshape(rows, kv_heads, grouped // query, query, d).transpose(0, 3, 1, 2, 4)
        return o.reshape(rows * query, -1, d)

    def block(self, segment: Segment) -> int:
        """Tokens of each row that attention fetches at once: those of the whole table under gather."""
        raise TypeError(f"{type(self).__name__} does not say how large its blocks are")

    def trips(self, segment: Segment, window: int | None) -> int:
        """How often the blockwise loop of a layer with this window runs for a segment: what no compiler can know.

        Args:
          segment: host arrays (np.ndarray), so that asking causes no work on the device. Of the cache only shapes are looked at.
          window: of the layer, in tokens; None for all.

        Returns:
          The same for every layer with that window. Under gather there is no loop, and this says 1: the table is read once.
        """
        if self.attention == "gather":
            return 1
        first, stop = block_range(segment, self.block(segment), window, np)
        return max(int(stop - first), 0)

    def _fetch(self, layer: int | jax.Array, segment: Segment) -> Fetch:
        """How to read a block of every row."""
        raise TypeError(f"{type(self).__name__} does not say how its blocks are read")

    def attend(self, layer: int | jax.Array, q: jax.Array, segment: Segment, rule: Rule) -> jax.Array:
        """q f32 [rows * query, heads, head_dim] over each row's cached tokens, its own of this step included -> as q."""
        attention = reference if self.attention == "gather" else blockwise
        with jax.named_scope("kv_read"):
            fetch = self._fetch(layer, segment)
        with jax.named_scope("scores"):
            grouped = self._grouped(q, segment.rows)
        mixed = attention(grouped, fetch, self.block(segment), segment, rule)
        with jax.named_scope("values"):
            return self._ungrouped(mixed, segment.query)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PagedKV(_Pools):
    """KV in pages of `unit` tokens that any row may own in any order (Kwon et al. 2023). A table entry >= units is no page."""

    def write(self, layer: int | jax.Array, k: jax.Array, v: jax.Array, segment: Segment) -> Self:
        """The cache with a segment's new K and V, f32 [rows * query, kv_heads, head_dim], at their positions."""
        at = segment.positions()
        width = segment.table.shape[1]
        page = jnp.take_along_axis(segment.table, jnp.minimum(at // self.unit, width - 1), axis=1)
        page = jnp.where(segment.live() & (at < width * self.unit), page, self.units)
        return self._scatter(layer, page.ravel(), (at % self.unit).ravel(), k, v)

    def block(self, segment: Segment) -> int:
        width = segment.table.shape[1]
        return self.unit * (width if self.attention == "gather" else -(-block_tokens(segment) // self.unit))

    def _fetch(self, layer: int | jax.Array, segment: Segment) -> Fetch:
        i, first = self._pool(layer)
        width, pages = segment.table.shape[1], self.block(segment) // self.unit
        # Padded with any page: what lies there is masked. A table of one block gets a second one: were the block the whole table, XLA
        # would take the read out of the loop, fuse it with the write before it and copy the pool for that (one row, 16 bits).
        blocks = max(-(-width // pages), 1 if self.attention == "gather" else 2)
        table = jnp.pad(segment.table, ((0, 0), (0, blocks * pages - width)))

        def fetch(block: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
            part = jax.lax.dynamic_slice_in_dim(table, block * pages, pages, axis=1) + first
            k, v = (array.at[part].get(mode="clip") for array in (self.keys[i], self.values[i]))
            if self.heads_first:
                k = k.transpose(0, 2, 3, 1, 4)  # [rows, kv_heads, head_dim, pages, unit]
                v = v.transpose(0, 2, 1, 3, 4)  # [rows, kv_heads, pages, unit, head_dim]
                k, v = k.reshape(*k.shape[:3], -1), v.reshape(*v.shape[:2], -1, v.shape[4])
            else:
                k, v = (x.reshape(len(part), -1, *x.shape[3:]) for x in (k, v))  # [rows, tokens, kv_heads, head_dim]
            return self._loaded(k, v, seen)

        return fetch


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ContiguousKV(_Pools):
    """KV in one slot of `unit` tokens a row: what an engine without paging reserves. A table entry >= units is no slot."""

    def write(self, layer: int | jax.Array, k: jax.Array, v: jax.Array, segment: Segment) -> Self:
        """The cache with a segment's new K and V, f32 [rows * query, kv_heads, head_dim], at their positions."""
        at = segment.positions()
        slot = jnp.where(segment.live() & (at < self.unit), segment.table[:, :1], self.units)
        return self._scatter(layer, slot.ravel(), at.ravel(), k, v)

    def block(self, segment: Segment) -> int:
        half = -(-self.unit // 2)  # two blocks at least, for the reason that `PagedKV` pads its table
        return self.unit if self.attention == "gather" else min(block_tokens(segment), half)

    def _fetch(self, layer: int | jax.Array, segment: Segment) -> Fetch:
        i, first = self._pool(layer)
        size = self.block(segment)
        slots = segment.table[:, 0] + first

        def fetch(block: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
            # The last block of a capacity that is no multiple starts early, so it is rolled to where the mask expects it.
            at = jnp.minimum(block * size, self.unit - size)
            early = block * size - at
            axes = (3, 2) if self.heads_first else (1, 1)  # of the tokens in K and in V
            k, v = (
                jnp.roll(jax.lax.dynamic_slice_in_dim(array, at, size, axis=axis).at[slots].get(mode="clip"), -early, axis=axis)
                for array, axis in zip((self.keys[i], self.values[i]), axes, strict=True)
            )
            return self._loaded(k, v, seen)

        return fetch
