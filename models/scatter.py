"""Writing tokens into a pool of K and V: one update in two forms, of which a compiler takes one in place and the other with a copy.

A pool is [units, kv_heads, unit, head_dim], or transposed [units, kv_heads, head_dim, unit]; token t goes to slot `slot[t]` of unit
`at[t]`, i32 [tokens], or nowhere if that is past the end; x is [tokens, kv_heads, head_dim] in the dtype of the pool.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp


def by_tokens(pool: jax.Array, at: jax.Array, slot: jax.Array, x: jax.Array, *, transposed: bool) -> jax.Array:
    """One index a token: all its heads are written at once."""
    return pool.at[(at, slice(None), slice(None), slot) if transposed else (at, slice(None), slot)].set(x, mode="drop")


def by_heads(pool: jax.Array, at: jax.Array, slot: jax.Array, x: jax.Array, *, transposed: bool) -> jax.Array:
    """One index a token and head.

    For a TPU: by tokens, its compiler would carry the pool of a scan with units and slots as the outer axes, which suits that write,
    and copy all of it in every layer to read from it.
    """
    at, head, slot = at[:, None], jnp.arange(x.shape[1]), slot[:, None]
    return pool.at[(at, head, slice(None), slot) if transposed else (at, head, slot)].set(x, mode="drop")


def write(pool: jax.Array, at: jax.Array, slot: jax.Array, x: jax.Array, *, transposed: bool) -> jax.Array:
    """The pool with the tokens in it, in the form that suits the platform that is compiled for."""
    heads, tokens = (functools.partial(form, transposed=transposed) for form in (by_heads, by_tokens))
    return jax.lax.platform_dependent(pool, at, slot, x, tpu=heads, default=tokens)
