"""Attention of a segment's queries over cached keys and values: the gather reference and the blockwise online softmax.

Both take grouped queries f32 [rows, kv_heads, group * query, head_dim] and return the same shape; both work in f32 whatever the
cache stores. K comes as [..., head_dim, tokens] and V as [..., tokens, head_dim]: stored like that each product reads its large operand
in the order in which it lies in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from models.segment import Segment

# (block index i32 [], which of its tokens any query sees, bool [rows, block]) -> K [rows, kv_heads, head_dim, block] and
# V [rows, kv_heads, block, head_dim] of the cached tokens in that block, V zero where unseen: 0 * a stale NaN would still be NaN
Fetch = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]

# A masked score, and where the running maximum starts: below any real score, yet so far above MASKED that exp(MASKED - FLOOR) is 0.
# Both are finite, so a row with nothing to attend to yields 0 and not NaN.
MASKED, FLOOR = -1e30, -1e29


@dataclasses.dataclass(frozen=True)
class Rule:
    """How scores are formed: softcap(scale * q.k), and which keys a query sees. `window` may be traced (layers under scan)."""

    scale: float
    softcap: float | None = None
    window: int | jax.Array | None = None

    def scores(self, q: jax.Array, k: jax.Array) -> jax.Array:
        """q [rows, kv_heads, group * query, head_dim], k [rows, kv_heads, head_dim, n] -> f32 [rows, kv_heads, group * query, n]."""
        scores = _product(q, k) * self.scale
        return scores if self.softcap is None else jnp.tanh(scores / self.softcap) * self.softcap

    def sees(self, segment: Segment, keys: jax.Array) -> jax.Array:
        """bool [rows, query, n]: may the query attend to the key at position keys i32 [n]? Causal, live, within the window."""
        at = segment.positions()[:, :, None]
        seen = (keys <= at) & segment.live()[:, :, None]
        return seen if self.window is None else seen & (keys > at - self.window)


def _over_group(mask: jax.Array, group: int) -> jax.Array:
    """[rows, query, n] -> [rows, 1, group * query, n], to broadcast over KV heads."""
    rows, query, n = mask.shape
    return jnp.broadcast_to(mask[:, None, None], (rows, 1, group, query, n)).reshape(rows, 1, group * query, n)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a f32 [rows, kv_heads, m, n] times b [rows, kv_heads, n, p] -> f32, a rounded to what b is in; true f32 on an accelerator too."""
    exact = jax.lax.Precision.HIGHEST if b.dtype == jnp.float32 else None
    dims = (((3,), (2,)), ((0, 1), (0, 1)))
    return jax.lax.dot_general(a.astype(b.dtype), b, dims, precision=exact, preferred_element_type=jnp.float32)


def reference(q: jax.Array, fetch: Fetch, size: int, segment: Segment, rule: Rule) -> jax.Array:
    """Softmax over the whole table at once, fetched as one block of `size` tokens: slow and obvious."""
    chex.assert_rank(q, 4)
    with jax.named_scope("softmax"):
        seen = rule.sees(segment, jnp.arange(size))
        any_seen = seen.any(axis=1)
    with jax.named_scope("kv_read"):
        k, v = fetch(jnp.int32(0), any_seen)
    with jax.named_scope("scores"):
        scores = rule.scores(q, k)
    with jax.named_scope("softmax"):
        scores = jnp.where(_over_group(seen, q.shape[2] // segment.query), scores, MASKED)
        weights = jnp.exp(scores - jnp.maximum(scores.max(axis=-1, keepdims=True), FLOOR))
        total = jnp.maximum(weights.sum(axis=-1, keepdims=True), 1e-30)
    with jax.named_scope("values"):
        return _product(weights, v) / total


def block_tokens(segment: Segment) -> int:
    """Tokens of one step of the blockwise loop, before rounding up to whole pages.

    A block of all rows should stay in cache, each step of the loop costs a dozen small kernels however little they do, and what a
    block holds past the longest row is wasted: 32 at 64 rows, 64 at fewer, 256 for a prefill chunk.
    """
    return min(max(2048 // segment.rows, 32), 64 if segment.query == 1 else 256)


def block_range(segment: Segment, block: int, window: int | jax.Array | None, numbers: Any = jnp) -> tuple[Any, Any]:
    """(first, stop): the blocks of `block` tokens from the first that any row's window reaches to the last that any row has filled.

    Args:
      numbers: jax.numpy within a step, or numpy for a segment of host arrays, where the answer must cause no work on the device.
    """
    live = segment.count > 0
    stop = (numbers.where(live, segment.start + segment.count, 0).max() + block - 1) // block
    if window is None:
        return numbers.int32(0), stop
    oldest = numbers.where(live, segment.start - window + 1, jnp.iinfo(jnp.int32).max)
    return numbers.maximum(oldest.min(), 0) // block, stop


def blockwise(q: jax.Array, fetch: Fetch, block: int, segment: Segment, rule: Rule) -> jax.Array:
    """Online softmax over blocks of `block` tokens (Milakov and Gimelshein 2018; Dao et al. 2022, algorithm 1).

    The loop runs over `block_range`, so the work follows the longest live row and neither the table's width nor the pool's size.
    """
    chex.assert_rank(q, 4)
    with jax.named_scope("kv_read"):
        first, stop = block_range(segment, block, rule.window)

    def body(carry: tuple[jax.Array, jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        i, top, total, mixed = carry
        with jax.named_scope("softmax"):
            seen = rule.sees(segment, i * block + jnp.arange(block))
            # Small and used for every element of K's scores and of V: kept from being computed anew for each.
            mask, any_seen = jax.lax.optimization_barrier((_over_group(seen, q.shape[2] // segment.query), seen.any(axis=1)))
        with jax.named_scope("kv_read"):
            k, v = fetch(i, any_seen)
            i = i + 1
        with jax.named_scope("scores"):
            scores = rule.scores(q, k)
        with jax.named_scope("softmax"):
            scores = jnp.where(mask, scores, MASKED)
            new_top = jnp.maximum(top, scores.max(axis=-1, keepdims=True))
            keep = jnp.exp(top - new_top)
            weights = jnp.exp(scores - new_top)
            total = total * keep + weights.sum(axis=-1, keepdims=True)
        with jax.named_scope("values"):
            return i, new_top, total, mixed * keep + _product(weights, v)

    def going(carry: tuple[jax.Array, jax.Array, jax.Array, jax.Array]) -> jax.Array:
        with jax.named_scope("kv_read"):
            return carry[0] < stop

    with jax.named_scope("softmax"):
        one = (*q.shape[:3], 1)
        top, total = jnp.full(one, FLOOR), jnp.zeros(one)
    with jax.named_scope("values"):
        mixed = jnp.zeros(q.shape)
    _, _, total, mixed = jax.lax.while_loop(going, body, (first, top, total, mixed))
    with jax.named_scope("values"):
        return mixed / jnp.maximum(total, 1e-30)
