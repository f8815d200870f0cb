"""The blockwise online softmax and the gather reference against attention's definition in float64, over a poisoned paged cache.

Every free page, every page past a row's end and the unwritten tail of its last page hold NaN, and so does padding in k and v.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.attention import Rule, blockwise
from models.kv_cache import PagedKV
from models.segment import Segment
from tests.compiling import UNOPTIMISED
from tests.models import caches
from tests.models.caches import NAN, Batch

F32 = 2e-6  # f32 rounding of sums of some hundred terms, relative to the largest value
BF16 = 2.0**-7  # two roundings to 8 bits


def run(
    lengths: list[int],
    query: int,
    page: int,
    rule: Rule,
    *,
    heads: int = 4,
    kv_heads: int = 2,
    dtype: Any = jnp.float32,
    seed: int = 0,
    traced: bool = False,
    **options: Any,
) -> tuple[Batch, list[np.ndarray]]:
    """Rows of these lengths and padding, written and attended to; `options` are fields of the cache that attention alone looks at."""
    config, lengths = caches.config(heads, kv_heads), caches.padded(lengths)
    table, units = caches.pages(lengths, page, seed=seed)
    batch = Batch.random(config, lengths, query, table, seed)
    kv = batch.write(caches.filled(PagedKV.zeros(config, units, page, dtype), NAN), 1)
    return batch, batch.attend(dataclasses.replace(kv, **options), rule, 1, traced=traced)


@pytest.mark.parametrize("query", [1, 5])
@pytest.mark.parametrize(
    ("page", "attention"), [(1, "blockwise"), (4, "blockwise"), (16, "blockwise"), (64, "blockwise"), (4, "gather")]
)
def test_page_edges(page: int, attention: str, query: int):
    """Contexts that end at a page edge, one before and one after it, at the edge of a block too; one row is padding."""
    edges = [max(edge + off, query) for edge in (page, 64, 256) for off in (-1, 0, 1)]
    batch, found = run(edges, query, page, Rule(0.3), attention=attention)
    assert caches.error(found, batch.expected(Rule(0.3))) < F32


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (4, 1), (9, 3), (8, 2)])
def test_groups(heads: int, kv_heads: int):
    batch, found = run([7, 90, 33], 3, 16, Rule(0.3), heads=heads, kv_heads=kv_heads)
    assert caches.error(found, batch.expected(Rule(0.3))) < F32


RULES = [Rule(0.3, None, 1), Rule(0.3, None, 5), Rule(0.3, None, 64), Rule(0.3, None, 500), Rule(0.5, 1.5), Rule(0.5, 1.5, 70)]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(
    ("attention", "query", "traced"), [("blockwise", 1, True), ("blockwise", 6, False), ("gather", 6, True)], ids=str
)
def test_window_and_softcap(attention: str, query: int, traced: bool, rule: Rule):
    """Rows within, at and beyond the window; with a query of 6 some tokens of a row are beyond it and others not."""
    traced = traced and rule.window is not None
    batch, found = run([6, 7, 64, 65, 300], query, 4, rule, attention=attention, traced=traced)
    assert caches.error(found, batch.expected(rule)) < F32
    plain = batch.expected(Rule(rule.scale))
    if rule.window != 500:
        assert caches.error(found, plain) > 0.01  # the rule is there to be seen


@pytest.mark.parametrize("attention", ["blockwise", "gather"])
@pytest.mark.parametrize("query", [1, 5])
def test_bf16_storage(query: int, attention: str):
    """Products in f32 are exact to f32 over the rounded k and v; products in bfloat16 round q and the weights too."""
    rule = Rule(0.3)
    batch, found = run([5, 64, 100], query, 16, rule, dtype=jnp.bfloat16, attention=attention)
    assert caches.error(found, batch.expected(rule, ml_dtypes.bfloat16)) < F32
    assert F32 < caches.error(found, batch.expected(rule)) < BF16
    batch, found = run([5, 64, 100], query, 16, rule, dtype=jnp.bfloat16, attention=attention, compute="bfloat16")
    assert caches.error(found, batch.expected(rule)) < 2 * BF16


SHAPES: list[dict[str, Any]] = [
    {"query": 1, "page": 3, "heads": 6, "kv_heads": 2},
    {"query": 7, "page": 16, "heads": 3, "kv_heads": 3, "attention": "gather"},
    {"query": 2, "page": 100, "heads": 4, "kv_heads": 1, "dtype": "bfloat16"},
]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    lengths=st.lists(st.integers(0, 300), min_size=4, max_size=4).filter(any),
    window=st.sampled_from([None, 1, 10, 65, 200]),
    seed=st.integers(0, 99),
)
def test_any_lengths_and_deal_of_pages(shape: dict[str, Any], lengths: list[int], window: int | None, seed: int):
    rule = Rule(0.4, 3.0, window)
    batch, found = run(lengths, rule=rule, seed=seed, **shape)
    stored = ml_dtypes.bfloat16 if shape.get("dtype") else np.float32
    assert caches.error(found, batch.expected(rule, stored)) < F32


def test_large_scores_do_not_overflow():
    """Scores of some thousand: the running maximum must move before anything is exponentiated."""
    rule = Rule(300.0)
    batch, found = run([3, 130], 1, 16, rule)
    assert caches.error(found, batch.expected(rule)) < 1e-3  # a score of 3000 is itself known to 1e-4 only


@pytest.mark.parametrize("window", [None, 1, 20])
@pytest.mark.parametrize("block", [1, 16, 64])
def test_any_block(block: int, window: int | None):
    """The loop alone, over plain arrays: 1 to 129 blocks a row, whatever block the caches choose."""
    rule, query = Rule(0.3, None, window), 3
    batch = Batch.random(caches.config(), [3, 17, 64, 129], query, np.zeros((4, 1), np.int32))
    room = 192
    k, v = (np.full((4, 2, room, 8), NAN, np.float32) for _ in range(2))
    for i, n in enumerate(batch.lengths):
        k[i, :, :n], v[i, :, :n] = batch.k[i], batch.v[i]

    def fetch(i: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
        part = jax.lax.dynamic_slice_in_dim(jnp.asarray(v), i * block, block, axis=2)
        keys = jax.lax.dynamic_slice_in_dim(jnp.asarray(k), i * block, block, axis=2)
        return keys.swapaxes(2, 3), jnp.where(seen[:, None, :, None], part, 0)

    q = np.stack([rows[:, -query:].reshape(2, 2 * query, 8) for rows in batch.q])  # [rows, kv_heads, group * query, head_dim]
    out = np.asarray(jax.jit(lambda q: blockwise(q, fetch, block, batch.last(), rule), compiler_options=UNOPTIMISED)(q))
    found = [out[i].reshape(4, query, 8) for i in range(4)]
    assert caches.error(found, batch.expected(rule)) < F32


def visited(starts: list[int], counts: list[int], window: int | None = None, block: int = 16) -> list[int]:
    """Blocks that the loop fetches, in order; the table is far wider than any row."""
    rows, query, fetched = 3, 9, []  # with rows and tokens of padding, so that all cases share programs
    starts, counts = ([*given, *[0] * (rows - len(given))] for given in (starts, counts))
    shape = (rows, 1, 4, block)

    def fetch(i: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
        fetched.append(int(i))
        return jnp.ones(shape), jnp.ones((rows, 1, block, 4))

    table = np.zeros((rows, 1000), np.int32)
    segment = Segment(*(jnp.asarray(a, jnp.int32) for a in (np.zeros((rows, query)), starts, counts, table)))
    with jax.disable_jit():
        blockwise(jnp.ones((rows, 1, query, 4)), fetch, block, segment, Rule(1.0, None, window))
    return fetched


@pytest.mark.parametrize(
    ("starts", "counts", "window", "blocks"),
    [
        ([0], [1], None, [0]),
        ([15], [1], None, [0]),
        ([16], [1], None, [0, 1]),
        ([30, 15, 3], [1, 1, 1], None, [0, 1]),
        ([30, 900, 3], [1, 0, 1], None, [0, 1]),  # a padding row costs nothing, wherever it stands
        ([900, 900], [0, 0], None, []),
        ([10], [7], None, [0, 1]),
        ([100], [1], 16, [5, 6]),  # positions 85 to 100
        ([111], [1], 16, [6]),
        ([112], [1], 1, [7]),
        ([100, 50], [1, 1], 16, [2, 3, 4, 5, 6]),  # the other row's window begins at 35
        ([100, 50], [1, 0], 16, [5, 6]),
        ([100], [9], 16, [5, 6]),
    ],
)
def test_work_follows_the_longest_live_row_and_the_window(
    starts: list[int], counts: list[int], window: int | None, blocks: list[int]
):
    assert visited(starts, counts, window) == blocks
