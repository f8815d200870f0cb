"""The two caches: what a write touches, that both say the same, and that nothing depends on where pages lie or what lies around.

Oracle: attention's definition in float64 (`tests.oracle.attention`), and equality to the last bit between two caches.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.attention import Rule
from models.kv_cache import ContiguousKV, PagedKV
from tests.models import caches
from tests.models.caches import KV, NAN, Batch

DTYPES = ["float32", "bfloat16"]
RULE = Rule(0.3, None, 50)
LENGTHS = caches.padded([1, 15, 16, 17, 300])


def paged(page: int, units: int, dtype: str = "float32", fill: float = NAN, **options: Any) -> PagedKV:
    return caches.filled(PagedKV.zeros(caches.config(), units, page, dtype, **options), fill)  # type: ignore[return-value]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) and np.isfinite(x).all() for x, y in zip(a, b, strict=True))


def equal(a: KV, b: KV) -> bool:
    """Bit for bit, so that NaN equals NaN."""
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


@pytest.mark.parametrize(
    ("page", "dtype", "query"),
    [(1, "float32", 1), (4, "bfloat16", 1), (16, "float32", 4), (16, "bfloat16", 4), (64, "float32", 4)],
)
def test_page_order_and_garbage_change_nothing(page: int, dtype: str, query: int):
    """Two deals of pages; the pool starts as 0 or as NaN (free pages, tails of live pages, pages of padding rows)."""
    results = []
    for seed, fill in ((0, 0.0), (0, NAN), (1, NAN), (2, float("inf"))):
        table, units = caches.pages(LENGTHS, page, seed=seed)
        table[5:] = np.arange(table[5:].size).reshape(table[5:].shape) % units  # padding rows name pages of live rows
        batch = Batch.random(caches.config(), LENGTHS, query, table)
        kv = batch.write(paged(page, units, dtype, fill), 1, twice=True)
        results.append(batch.attend(kv, RULE, 1))
    assert all(same(results[0], other) for other in results[1:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "stacked"), [(PagedKV, False), (PagedKV, True), (ContiguousKV, True)])
def test_entries_that_name_no_page_drop_writes(kind: Any, stacked: bool, dtype: str):
    """units, units + 1 and the largest i32, at layer 0 too, where an index past it would be layer 1's in a stacked pool."""
    for entry in (5, 6, 2**31 - 1):
        batch = Batch.random(caches.config(), [12, 9], 4, np.full((2, 2), entry, np.int32))
        before = caches.filled(kind.zeros(caches.config(), 5, 16, dtype, stacked=stacked), 1.0)
        for layer in (0, 1):
            assert equal(batch.write_segment(before, batch.last(), layer), before)


@pytest.mark.parametrize("kind", [PagedKV, ContiguousKV])
def test_writes_past_the_end_of_a_row_are_dropped(kind: Any):
    """A table of one page of 4 and a slot of 4: tokens 4 and later have no place, and must not land at another's."""
    batch = Batch.random(caches.config(), [9], 9, np.zeros((1, 1), np.int32))
    before = caches.filled(kind.zeros(caches.config(), 3, 4, jnp.float32), 1.0)
    assert equal(batch.write(before), batch.write_segment(before, batch.segment([0], [4], caches.LONGEST)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [PagedKV, ContiguousKV])
def test_a_write_touches_its_own_tokens_only(kind: Any, dtype: str):
    """Rows 0 and 2 write 3 tokens of layer 1: 2 * 3 * (k and v) * kv_heads * head_dim numbers change, and layer 0 does not."""
    config, page = caches.config(), 16
    table = np.array([[3, 1], [0, 2], [4, 5]], np.int32)
    batch = Batch.random(config, [17, 0, 5], 3, table)
    before = caches.filled(kind.zeros(config, 6, page if kind is PagedKV else 32, dtype), 77.0)
    segment = batch.last()
    after = batch.write_segment(before, segment, 1)
    changed = [int((np.asarray(a) != np.asarray(b)).sum()) for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)]
    assert sum(changed) == 2 * 3 * 2 * config.kv_heads * config.head_dim
    rows = batch.attend(batch.write(before, 1), RULE, 0)  # layer 0 still holds the constant, whatever the scores
    assert all(np.allclose(row, 77.0) for row in rows)


@pytest.mark.parametrize(
    ("capacity", "query", "dtype"),
    [(100, 1, "float32"), (64, 4, "float32"), (128, 1, "bfloat16"), (130, 1, "bfloat16"), (300, 4, "float32")],
)
def test_contiguous_equals_paged(capacity: int, query: int, dtype: str):
    """Capacities that are less than, equal to and no multiple of a block."""
    lengths = caches.padded([min(n, capacity) for n in (1, 15, 64, 65, 257, capacity)])
    table, units = caches.pages(lengths, 16)
    batch = Batch.random(caches.config(), lengths, query, table)
    slots = Batch(batch.q, batch.k, batch.v, batch.counts, query, np.array([4, 2, 0, 6, 1, 5, 3, 0, 9, 9], np.int32)[:, None])
    contiguous = caches.filled(ContiguousKV.zeros(caches.config(), 7, capacity, dtype), NAN)
    ours = slots.attend(slots.write(contiguous, 1), RULE, 1)
    theirs = batch.attend(batch.write(paged(16, units, dtype), 1), RULE, 1)
    assert caches.error(ours, theirs) < 1e-6
    if dtype == "float32":
        assert caches.error(ours, batch.expected(RULE)) < 2e-6


@pytest.mark.parametrize(
    ("kind", "attention", "dtype"),
    [(PagedKV, "blockwise", "bfloat16"), (PagedKV, "gather", "float32"), (ContiguousKV, "blockwise", "float32")],
)
def test_one_pool_for_all_layers_equals_one_a_layer(kind: Any, attention: str, dtype: str):
    """Bit for bit, and with a traced layer, as under scan."""
    table, units = (
        caches.pages(LENGTHS, 16) if kind is PagedKV else (np.arange(caches.ROWS, dtype=np.int32)[:, None], caches.ROWS)
    )
    batch = Batch.random(caches.config(), LENGTHS, 4, table)
    segment, unit = batch.last(), 16 if kind is PagedKV else 310
    q = jnp.nan_to_num(batch.tokens(batch.q, segment))
    results = []
    for stacked in (False, True):
        kv = caches.filled(kind.zeros(caches.config(), units, unit, dtype, stacked=stacked, attention=attention), NAN)
        assert (kv.units, kv.unit) == (units, unit)
        kv = batch.write(batch.write(kv, 1), 0)
        # One array a layer wants to know the layer when it is compiled; one pool takes it as an argument.
        mix = jax.jit(lambda kv, layer: kv.attend(layer, q, segment, RULE), static_argnums=() if stacked else 1)
        results.append([np.asarray(mix(kv, layer)) for layer in (0, 1)])
    assert same(*results)


@pytest.mark.parametrize("attention", ["blockwise", "gather"])
@pytest.mark.parametrize("kind", [PagedKV, ContiguousKV])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_either_way_that_they_lie_gives_the_definition(kind: Any, attention: str, dtype: str):
    """Heads outside tokens for a CPU, tokens outside heads for accelerators; the oracle is attention in float64 over what is stored."""
    table, units = (
        caches.pages(LENGTHS, 16) if kind is PagedKV else (np.arange(caches.ROWS, dtype=np.int32)[:, None], caches.ROWS)
    )
    batch = Batch.random(caches.config(), LENGTHS, 4, table)
    shapes = set()
    for heads_first in (True, False):
        kv = kind.zeros(caches.config(), units, 16 if kind is PagedKV else 310, dtype, heads_first=heads_first)
        shapes.add(kv.keys[0].shape)
        kv = dataclasses.replace(batch.write(caches.filled(kv, NAN)), attention=attention)
        found = batch.attend(kv, RULE)
        assert caches.error(found, batch.expected(RULE, jnp.dtype(dtype))) < 1e-5
    assert len(shapes) == 2


@settings(max_examples=40, deadline=None)
@given(
    page=st.sampled_from([3, 16]),
    cuts=st.lists(st.integers(1, 8), min_size=1, max_size=12),
    deal=st.integers(0, 9),
)
def test_any_cut_into_writes_gives_the_same_cache(page: int, cuts: list[int], deal: int):
    """One sequence written in random chunks, each padded to 8 tokens, equals the same written at once."""
    table, units = caches.pages([sum(cuts)], page, seed=deal)
    batch = Batch.random(caches.config(), [sum(cuts)], 1, table)
    kv: KV = paged(page, units)
    at = 0
    for count in cuts:
        kv = batch.write_segment(kv, batch.segment([at], [count], 8))
        at += count
    assert equal(kv, batch.write(paged(page, units)))
