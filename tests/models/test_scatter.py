"""The two forms of a write are the same update.

Oracle: a loop over tokens, heads and elements in numpy. Only one of the forms runs on the machine of a test, so both are called here.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import scatter

UNITS, HEADS, SIZE, UNIT, TOKENS = 5, 2, 8, 4, 7
NOWHERE = np.iinfo(np.int32).max


def case(seed: int, dtype: Any, transposed: bool) -> tuple[Any, Any, Any, Any]:
    """A pool, distinct places (the last token goes nowhere), and what to write."""
    draw = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        return draw.integers(0, 2**16, shape).astype(dtype)

    at, slot = np.divmod(draw.permutation(UNITS * UNIT)[:TOKENS].astype(np.int32), UNIT)
    at[-1] = NOWHERE
    pool = numbers(UNITS, HEADS, SIZE, UNIT) if transposed else numbers(UNITS, HEADS, UNIT, SIZE)
    return pool, at, slot, numbers(TOKENS, HEADS, SIZE)


def naive(pool: Any, at: Any, slot: Any, x: Any, transposed: bool) -> np.ndarray:
    pool = pool.copy()
    for token in range(TOKENS):
        if at[token] < UNITS:
            for head in range(HEADS):
                for d in range(SIZE):
                    last = (d, slot[token]) if transposed else (slot[token], d)
                    pool[(at[token], head, *last)] = x[token, head, d]
    return pool


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "uint16"])
@pytest.mark.parametrize("write", [scatter.by_tokens, scatter.by_heads, scatter.write])
def test_a_write_touches_the_tokens_places_and_nothing_else(write: Any, dtype: str, transposed: bool):
    for seed in range(5):
        given = case(seed, dtype, transposed)
        found = jax.jit(functools.partial(write, transposed=transposed))(*map(jnp.asarray, given))
        np.testing.assert_array_equal(np.asarray(found), naive(*given, transposed))


@pytest.mark.parametrize("transposed", [True, False])
def test_a_tpu_gets_the_form_that_it_takes_in_place(transposed: bool):
    """An index vector of three numbers (unit, head, slot) for a TPU and of two elsewhere."""
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in case(0, "uint16", transposed)]
    traced = jax.jit(functools.partial(scatter.write, transposed=transposed)).trace(*given)
    for platform, indices in (("tpu", f"{TOKENS}x{HEADS}x3"), ("cpu", f"{TOKENS}x2"), ("cuda", f"{TOKENS}x2")):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert text.count('"stablehlo.scatter"(') == 1 and f"tensor<{indices}xi32>" in text
