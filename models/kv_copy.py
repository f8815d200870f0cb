"""KV that is copied as it lies, page by page or slot by slot: within a pool where samples part, between pools where a row moves."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from models.layers import KV


def copy_units(source: KV, target: KV, pairs: jax.Array) -> KV:
    """The target with some of its units replaced by units of the source; all are read before any is written.

    Args:
      source, target: of one kind and shape but for the number of units; they may be one cache. Donate the target.
      pairs: i32 [n, 2], (from, to) units. A pair whose target is no unit of the target copies nothing.
    """

    def copied(old: jax.Array, new: jax.Array) -> jax.Array:
        layers = target.layers // len(target.keys)  # in one array
        layer = jnp.arange(layers)[:, None]
        at = jnp.where(pairs[:, 1] < target.units, layer * target.units + pairs[:, 1], jnp.iinfo(jnp.int32).max)
        read = old.at[layer * source.units + pairs[:, 0]].get(mode="clip")  # [layers, n, ...]
        return new.at[at].set(read, mode="drop")

    return dataclasses.replace(
        target,
        keys=tuple(map(copied, source.keys, target.keys)),
        values=tuple(map(copied, source.values, target.values)),
    )
