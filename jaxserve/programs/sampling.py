"""Choosing the next token inside the program: greedy, temperature, top-k, top-p and min-p, each row by its own settings.

The key of a sample is a function of (seed of the request, position of the token) and nothing else, so a request draws the same text
alone, in any batch, under any schedule, where its logits are the same: in float32 but for ties, in 16 bits in a batch-invariant engine.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.sampling_params import SamplingParams
from models.segment import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowSampling:
    """The settings of all rows of a segment, as arrays [rows]."""

    temperature: Array  # f32
    top_k: Array  # i32
    top_p: Array  # f32
    min_p: Array  # f32
    seed: Array  # u32

    @classmethod
    def of(cls, rows: list[SamplingParams]) -> RowSampling:
        """Pack requests' settings, as host arrays."""
        return cls(
            temperature=np.array([r.temperature for r in rows], np.float32),
            top_k=np.array([min(r.top_k, 2**31 - 1) for r in rows], np.int32),
            top_p=np.array([r.top_p for r in rows], np.float32),
            min_p=np.array([r.min_p for r in rows], np.float32),
            seed=np.array([r.seed or 0 for r in rows], np.uint32),
        )


def greedy(logits: jax.Array) -> jax.Array:
    """logits f32 [rows, vocab] -> i32 [rows], the smallest index where several tie; any token for a row of NaN.

    In two steps, the best of each run of 256 tokens and then the index within the best run: one pass over the logits with a plain
    maximum, several times faster on a CPU than an argmax over all of them.
    """
    rows, vocab = logits.shape
    run = 256
    runs = jnp.pad(logits, ((0, 0), (0, -vocab % run)), constant_values=-jnp.inf).reshape(rows, -1, run)
    best = jnp.argmax(runs.max(axis=2), axis=1).astype(jnp.int32)
    within = jnp.argmax(jnp.take_along_axis(runs, best[:, None, None], axis=1)[:, 0], axis=1).astype(jnp.int32)
    return jnp.minimum(best * run + within, vocab - 1)


def sample(logits: jax.Array, rows: RowSampling, position: jax.Array) -> jax.Array:
    """Draw one token a row.

    Args:
      logits: f32 [rows, vocab].
      rows: settings, [rows].
      position: i32 [rows], where the drawn token will stand in its sequence.

    Returns:
      i32 [rows]. A batch without a row that draws pays for the greedy choice alone, one without filters not for them.
    """
    best = greedy(logits)
    drawing = rows.temperature > 0

    def draw() -> jax.Array:
        # Below the likeliest token's, so that no temperature, however small, makes them infinite at the top.
        scaled = logits - logits.max(axis=1, keepdims=True)  # [rows, vocab]
        scaled = scaled / jnp.where(drawing, rows.temperature, 1)[:, None]
        filtering = drawing & ((rows.top_k > 0) | (rows.top_p < 1) | (rows.min_p > 0))
        scaled = jax.lax.cond(filtering.any(), lambda: jnp.where(_kept(scaled, rows), scaled, -jnp.inf), lambda: scaled)
        noise = jax.vmap(lambda seed, at: _gumbel(seed, at, scaled.shape[1]))(rows.seed, position)
        return jnp.where(drawing, greedy(scaled + noise), best)

    return jax.lax.cond(drawing.any(), draw, lambda: best)


def _gumbel(seed: jax.Array, position: jax.Array, vocab: int) -> jax.Array:
    return jax.random.gumbel(jax.random.fold_in(jax.random.key(seed), position), (vocab,))


def _kept(scaled: jax.Array, rows: RowSampling) -> jax.Array:
    """bool [rows, vocab]: tokens that top-k, then top-p and min-p leave, of logits after temperature f32 [rows, vocab]."""
    vocab = scaled.shape[1]
    k = jnp.where(rows.top_k > 0, jnp.minimum(rows.top_k, vocab), vocab)
    kept = scaled >= _threshold(scaled, jnp.ones_like(scaled), k.astype(jnp.float32))[:, None]
    odds = jnp.where(kept, jnp.exp(scaled - scaled.max(axis=1, keepdims=True)), 0)  # 1 for the likeliest
    # The likeliest token stays whatever top_p is; a mass a hair under the whole avoids asking for more than rounding left.
    mass = jnp.where(rows.top_p < 1, rows.top_p * odds.sum(axis=1), 0)
    by_mass = odds >= jnp.where(rows.top_p < 1, _threshold(odds, odds, mass), 0)[:, None]
    return kept & by_mass & (odds >= rows.min_p[:, None])


def _threshold(values: jax.Array, weights: jax.Array, wanted: jax.Array) -> jax.Array:
    """The largest x [rows] for which the weights of values >= x sum to at least `wanted` [rows]. values, weights [rows, vocab].

    Bisection over the bits of the float, 32 passes over the data: exact, and on a CPU far cheaper than sorting the vocabulary.
    """
    ordered = _to_ordered(values)

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds  # low is reached, high is not
        middle = low + (high - low) // 2
        reached = jnp.where(ordered >= middle[:, None], weights, 0).sum(axis=1) >= wanted
        return jnp.where(reached, middle, low), jnp.where(reached, high, middle)

    low = ordered.min(axis=1)
    high = ordered.max(axis=1)
    top_reaches = jnp.where(ordered >= high[:, None], weights, 0).sum(axis=1) >= wanted
    low, _ = jax.lax.fori_loop(0, 32, halve, (jnp.where(top_reaches, high, low), high))
    return _from_ordered(low)


def _to_ordered(x: jax.Array) -> jax.Array:
    """f32 -> u32 in the same order."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))


def _from_ordered(u: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(jnp.where(u >> 31 == 1, u & jnp.uint32(0x7FFFFFFF), ~u), jnp.float32)
