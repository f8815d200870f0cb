"""Copies in as many programs as they need. Oracles: numpy, out of the pool as it was; XLA's own memory totals for law 4."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.compile.xla import in_place, xla_totals
from jaxserve.engine.compiled_programs import KVCopier
from models.kv_cache import ContiguousKV, PagedKV
from tests.jaxserve.programs.test_program_set import compile_events
from tests.models import caches

UNITS, MOST = 12, 4


def pool(seed: int, units: int = UNITS, kind: Any = PagedKV, **options: Any) -> Any:
    empty = kind.zeros(caches.config(heads=1, kv_heads=1, layers=1), units, 2, jnp.float32, **options)
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda a: jnp.asarray(draw.standard_normal(a.shape).astype(a.dtype)), empty)


@functools.cache
def mover() -> KVCopier:
    return KVCopier(pool(0), MOST, workers=True)


def arrays(kv: Any) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in jax.tree.leaves(kv)]


def naive(source: list[np.ndarray], target: list[np.ndarray], pairs: list[tuple[int, int]]) -> list[np.ndarray]:
    made = [each.copy() for each in target]
    for old, new in zip(source, made, strict=True):
        for origin, to in pairs:
            new[to] = old[origin]
    return made


def same(kv: Any, expected: list[np.ndarray]) -> None:
    assert all(np.array_equal(found, wanted) for found, wanted in zip(arrays(kv), expected, strict=True))


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Every unit is written at most once, from any unit; circles only where all go at once."""
    targets = draw(st.lists(st.integers(0, UNITS - 1), unique=True, max_size=UNITS))
    order = draw(st.permutations(range(UNITS)))
    rank = {unit: i for i, unit in enumerate(order)}
    pairs = []
    for target in targets:
        below = [unit for unit in range(UNITS) if rank[unit] < rank[target] or len(targets) <= MOST]
        if below:
            pairs.append((draw(st.sampled_from(below)), target))
    return pairs


@given(chains())
@settings(max_examples=100, deadline=None)
def test_within_a_pool_as_if_all_were_read_first(pairs: list[tuple[int, int]]):
    """However many there are, and however one reads what another overwrites."""
    kv = pool(1)
    before = arrays(kv)
    same(mover().copy(kv, pairs), naive(before, before, pairs))


@given(
    st.lists(st.tuples(st.integers(0, UNITS - 1), st.integers(0, UNITS - 1)), max_size=UNITS, unique_by=lambda pair: pair[1])
)
@settings(max_examples=50, deadline=None)
def test_between_pools(pairs: list[tuple[int, int]]):
    source, target = pool(1), pool(2)
    before, old = arrays(target), arrays(source)
    same(mover().send(source, target, pairs), naive(old, before, pairs))
    same(source, old)


def test_more_in_a_circle_than_go_at_once_are_refused():
    """Memory never lends so. What can't be done must not be done wrong."""
    with pytest.raises(RuntimeError, match="copies in a circle"):
        mover().copy(pool(1), [(i, (i + 1) % 5) for i in range(5)])


def test_nothing_compiles_when_copies_come():
    kv, other = pool(1), pool(2)
    made = mover()
    with compile_events() as events:
        for count in range(1, 10):
            kv = made.copy(kv, [(10, i) for i in range(count)])
            other = made.send(kv, other, [(i, i + 1) for i in range(count)])
    assert not events


def test_one_worker_has_nobody_to_send_to():
    assert mover().between and not KVCopier(pool(0), 1).between


@pytest.mark.parametrize("kind", [PagedKV, ContiguousKV])
def test_copies_are_made_in_place(kind: Any):
    """Law 4: a pool 100 times as large takes no more room beside it."""
    small, large = (KVCopier(pool(0, units, kind), MOST, workers=True) for units in (50, 5000))
    for way in ("_within", "_between"):
        for size in (1, MOST):
            assert in_place(*(xla_totals(getattr(each, way)[size]) for each in (small, large))), (way, size)
