"""The small programs whose speed `costmodel.hardware.ceilings` races: memory reads, matmuls, and a stack shaped like a decode step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from costmodel.hardware.host import last_level_cache_bytes
from models.transformer import linear

Run: TypeAlias = Callable[[], Any]  # does the work once and returns what to wait for
Stack: TypeAlias = Callable[[int], Run]  # rows -> run

HIDDEN, FFN, VOCAB = 576, 1536, 49152  # of SmolLM2-135M, the model that runs by default


@dataclasses.dataclass(frozen=True)
class Probe:
    """A run and what one call of it moves (B) or computes (FLOP)."""

    run: Run
    amount: float


def read_probes(size: int | None = None) -> dict[str, Probe]:
    """Ways to read an f32 array of `size` bytes once, by default far beyond any cache. No single one is fastest everywhere."""
    on_cpu = jax.default_backend() == "cpu"
    size = size or (min(max(2**28, 8 * last_level_cache_bytes()), 2**31) if on_cpu else 2**32)
    columns = 4096
    matrix = jnp.ones((size // (4 * columns), columns), jnp.float32)  # ones are written, where zeros may all be one page
    vector = jnp.ones((columns,), jnp.float32)
    amount = float(matrix.nbytes)
    total, product = jax.jit(lambda m: m.sum()), jax.jit(lambda m, v: m @ v)
    probes = {
        "jax sum": Probe(lambda: total(matrix), amount),
        "jax matrix-vector": Probe(lambda: product(matrix, vector), amount),
    }
    if on_cpu:
        flat = np.asarray(matrix).reshape(-1)  # a view of the same memory
        probes["numpy dot"] = Probe(lambda: flat.dot(flat), amount)
    return probes


def matmul_probes(dtype: str) -> dict[str, Probe]:
    """Square-weight matmuls at several row counts, in the form in which the model multiplies (`models.transformer.linear`)."""
    on_cpu = jax.default_backend() == "cpu"
    side, counts = (2048, (64, 256, 1024)) if on_cpu else (8192, (1024, 8192))
    weights = jnp.full((side, side), 0.01, dtype)

    @jax.jit
    def multiply(x: jax.Array, w: jax.Array) -> jax.Array:
        return linear(w, x)

    def probe(rows: int) -> Probe:
        x = jnp.ones((rows, side), jnp.float32)
        return Probe(lambda: multiply(x, weights), 2.0 * rows * side * side)

    return {f"{rows} x {side} x {side}": probe(rows) for rows in counts}


def decode_stacks(layers: int | None = None) -> dict[str, Stack]:
    """The matmuls of a decode step as the model takes them, without attention, in f32 and in bf16: a gated MLP a layer and a head.

    Widths are SmolLM2's. The weights are several times the last cache in either dtype (at least 280 MB in f32), so few rows are
    bound by memory and many by arithmetic, as in a step.
    """
    if layers is None:
        beyond = 4 * last_level_cache_bytes() // 2 - VOCAB * HIDDEN
        layers = min(max(16, math.ceil(beyond / (3 * FFN * HIDDEN))), 96)
    return {dtype: _decode_stack(dtype, layers) for dtype in ("float32", "bfloat16")}


def _decode_stack(dtype: str, layers: int) -> Stack:
    weights = [(jnp.full((2 * FFN, HIDDEN), 0.01, dtype), jnp.full((HIDDEN, FFN), 0.01, dtype)) for _ in range(layers)]
    head = jnp.full((VOCAB, HIDDEN), 0.01, dtype)

    @jax.jit
    def step(x: jax.Array, weights: list[tuple[jax.Array, jax.Array]], head: jax.Array) -> jax.Array:
        for up, down in weights:
            gate_up = linear(up, x)
            x = jnp.tanh(linear(down, gate_up[:, :FFN] * gate_up[:, FFN:]))  # bounded, so that nothing overflows or vanishes
        return linear(head, x).argmax(axis=1)

    def stack(rows: int) -> Run:
        x = jnp.ones((rows, HIDDEN), jnp.float32)
        return lambda: step(x, weights, head)

    return stack
