"""Copies of pages and slots. Oracle: numpy, unit by unit, out of a copy of the pool as it was."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.kv_cache import ContiguousKV, PagedKV
from models.kv_copy import copy_units
from tests.models import caches

LAYERS = 2


def pool(kind: Any, units: int, seed: int, **options: Any) -> Any:
    """A cache in which every number is another."""
    empty = kind.zeros(caches.config(layers=LAYERS), units, 4, **options)
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda a: jnp.asarray(draw.integers(1, 60_000, a.shape).astype(a.dtype)), empty)


def naive(source: Any, target: Any, pairs: list[tuple[int, int]]) -> list[np.ndarray]:
    """Leaves of the target with its copies, each [layers here, units, ...]."""
    found = []
    for old, new in zip(jax.tree.leaves(source), jax.tree.leaves(target), strict=True):
        here = LAYERS // len(source.keys)
        before = np.array(old).reshape(here, source.units, *old.shape[1:])
        after = np.array(new).reshape(here, target.units, *new.shape[1:])
        for origin, to in pairs:
            if to < target.units:
                after[:, to] = before[:, origin]
        found.append(after.reshape(new.shape))
    return found


def same(found: Any, expected: list[np.ndarray]) -> None:
    for a, b in zip(jax.tree.leaves(found), expected, strict=True):
        assert np.array_equal(np.asarray(a), b)


OPTIONS = [
    {"dtype": jnp.float32},
    {"dtype": jnp.bfloat16, "stacked": True},
    {"dtype": jnp.float32, "stacked": True, "heads_first": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [PagedKV, ContiguousKV])
def test_within_a_pool_all_are_read_before_any_is_written(kind: Any, options: dict[str, Any]):
    """A chain, two that change places, one source for two; 7 is no unit, and not the first of the next layer either."""
    kv = pool(kind, 7, 0, **options)
    pairs = [(0, 1), (1, 2), (3, 4), (4, 3), (0, 5), (2, 7)]
    same(copy_units(kv, kv, jnp.array(pairs, jnp.int32)), naive(kv, kv, pairs))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_between_pools_of_different_sizes(options: dict[str, Any]):
    source, target = pool(PagedKV, 5, 1, **options), pool(PagedKV, 9, 2, **options)
    pairs = [(4, 8), (0, 0), (0, 1), (3, 9)]
    same(copy_units(source, target, jnp.array(pairs, jnp.int32)), naive(source, target, pairs))
    back = [(8, 4), (1, 5)]
    same(copy_units(target, source, jnp.array(back, jnp.int32)), naive(target, source, back))


def test_nothing_but_padding_changes_nothing():
    kv = pool(PagedKV, 4, 3, dtype=jnp.float32)
    same(copy_units(kv, kv, jnp.full((3, 2), 4, jnp.int32).at[:, 0].set(0)), naive(kv, kv, []))
