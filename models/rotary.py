"""Rotary position embedding (Su et al. 2021): frequencies of every scaling we run, and their application.

The cos and sin of all positions of a run are made once on the host in float64 and stored in f32, so an angle is correct to f32
rounding at any position: a product position * frequency taken in f32 is off by 8e-3 radians at 131,072, and in bf16 it is noise.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from models.config.model_config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int, context: int) -> np.ndarray:
    """Radians per position, float64 [head_dim / 2].

    Args:
      rope: which scaling; see `RopeConfig`.
      head_dim: elements of one head, all of them rotated.
      context: positions that the run can reach. Only dynamic NTK looks at it: the base is stretched for this length, once, so a
        cached key and a later query agree (a base that moves with each token would contradict the keys already in the cache).
    """
    half = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    theta = rope.theta
    if rope.kind == "dynamic" and context > rope.original_positions:
        stretch = rope.factor * context / rope.original_positions - (rope.factor - 1)
        theta *= stretch ** (head_dim / (head_dim - 2))
    freq = theta**-half
    if rope.kind == "linear":
        return freq / rope.factor
    if rope.kind == "llama3":
        return _llama3(freq, rope)
    if rope.kind == "yarn":
        return _yarn(freq, rope, head_dim)
    return freq


def _llama3(freq: np.ndarray, rope: RopeConfig) -> np.ndarray:
    """Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between blended."""
    turns = rope.original_positions * freq / (2 * np.pi)  # full turns within the original context
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = np.clip(blend, 0.0, 1.0)
    return freq * (blend + (1.0 - blend) / rope.factor)


def _yarn(freq: np.ndarray, rope: RopeConfig, head_dim: int) -> np.ndarray:
    """YaRN (Peng et al. 2023, section 3.2): the ramp runs over dimensions, from beta_fast to beta_slow turns."""

    def dimension(turns: float) -> float:
        return head_dim * (math.log(rope.original_positions) - math.log(turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = (np.arange(head_dim // 2) - low) / (high - low or 1e-3)
    ramp = np.clip(ramp, 0.0, 1.0)
    return freq * (1.0 - ramp + ramp / rope.factor)


def amplitude(rope: RopeConfig) -> float:
    """What cos and sin are multiplied by: 1, or YaRN's attention temperature."""
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor

    def scale(m: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * m * math.log(rope.factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)


def table(rope: RopeConfig, head_dim: int, context: int) -> np.ndarray:
    """cos and sin of every position: f32 [context, 2, head_dim / 2]."""
    angles = np.arange(context, dtype=np.float64)[:, None] * inverse_frequencies(rope, head_dim, context)
    both = np.stack([np.cos(angles), np.sin(angles)], axis=1) * amplitude(rope)
    return both.astype(np.float32)


def rotate(x: jax.Array, cos_sin: jax.Array) -> jax.Array:
    """Turn each head by its position: x f32 [tokens, heads, head_dim], cos_sin f32 [tokens, 2, head_dim / 2] -> as x.

    Pairs are (i, i + head_dim / 2), the layout of Hugging Face checkpoints.
    """
    cos, sin = cos_sin[:, 0, None, :], cos_sin[:, 1, None, :]
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
