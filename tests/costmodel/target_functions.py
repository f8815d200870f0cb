"""Functions that another process can import and compile."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec


def multiply(x: jax.Array, w: jax.Array) -> jax.Array:
    with jax.named_scope("out"):
        return x @ w


def add(pool: jax.Array, rows: jax.Array) -> jax.Array:
    return pool.at[:4].add(rows)


def mlp(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    """Split over the axis `model`: up by columns and down by rows, so the result is a sum over the chips."""
    h = jax.lax.with_sharding_constraint(jnp.tanh(x @ up), PartitionSpec(None, "model"))
    return h @ down


def slow(x: jax.Array) -> jax.Array:
    """Takes longer to trace than any test waits."""
    time.sleep(600)
    return x


def broken(x: jax.Array) -> jax.Array:
    return x @ x


def environment(x: jax.Array) -> jax.Array:
    """Fails with what the compiling process sees."""
    raise ValueError(f"{jax.default_backend()} {jax.device_count()}")


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def bf16(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)
