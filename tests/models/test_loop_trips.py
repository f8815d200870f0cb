"""How often the blockwise loop runs, as the host works it out.

Oracles: the blocks in which some live query sees a key, found by going through all of them, and the loop itself, counted as it runs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.attention import Rule, block_range, blockwise
from models.kv_cache import ContiguousKV, PagedKV
from models.segment import Segment
from tests.models import caches

CONTEXT = 256


def segment(start: list[int], count: list[int], query: int, width: int = 16) -> Segment:
    rows = len(start)
    first, live = np.array(start, np.int32), np.array(count, np.int32)
    return Segment(np.zeros((rows, query), np.int32), first, live, np.zeros((rows, width), np.int32))


def visible(s: Segment, window: int | None) -> list[int]:
    """Positions that any live query sees."""
    seen = set()
    for start, count in zip(s.start, s.count, strict=True):
        for at in range(start, start + count):
            seen |= set(range(0 if window is None else max(at - window + 1, 0), at + 1))
    return sorted(seen)


@st.composite
def segments(draw: Any) -> Segment:
    query = draw(st.sampled_from([1, 3, 16]))
    rows = draw(st.lists(st.tuples(st.integers(0, CONTEXT - query), st.integers(0, query)), min_size=1, max_size=4))
    return segment([start for start, _ in rows], [count for _, count in rows], query)


@given(segments(), st.sampled_from([1, 5, 16, 64]), st.sampled_from([None, 1, 7, 100]))
@settings(max_examples=150, deadline=None)
def test_the_range_is_the_blocks_that_are_seen(s: Segment, block: int, window: int | None):
    first, stop = block_range(s, block, window, np)
    seen = visible(s, window)
    if seen:
        assert (first, stop) == (seen[0] // block, seen[-1] // block + 1)
    else:
        assert stop <= first
    assert isinstance(stop, np.integer)  # no work for the device


@pytest.mark.parametrize(
    ("start", "count", "query", "window"),
    [([0, 40, 99], [1, 1, 1], 1, None), ([60, 90], [1, 1], 1, 20), ([0, 5], [0, 0], 1, None), ([8], [13], 16, 4)],
)
def test_the_loop_runs_that_often(start: list[int], count: list[int], query: int, window: int | None):
    s, block, read = segment(start, count, query), 8, []

    def fetch(i: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
        jax.debug.callback(lambda i: read.append(int(i)), i, ordered=True)
        return jnp.ones((len(start), 1, 4, block)), jnp.ones((len(start), 1, block, 4))

    jax.block_until_ready(blockwise(jnp.ones((len(start), 1, query, 4)), fetch, block, s, Rule(1.0, None, window)))
    jax.effects_barrier()
    first, stop = block_range(s, block, window, np)
    assert read == list(range(first, stop))


@pytest.mark.parametrize(
    ("kind", "rows", "query", "held", "window", "expected"),
    [
        (PagedKV, 32, 1, 1024, None, 16),  # 2048 / 32 = 64 tokens a block
        (PagedKV, 1, 1, 1024, None, 16),  # at most 64 tokens for a query of 1
        (PagedKV, 128, 1, 1000, None, 32),  # at least 32
        (PagedKV, 1, 256, 1024, None, 4),  # 256 for a chunk
        (PagedKV, 32, 1, 1024, 100, 2),  # positions 924 to 1023: blocks 14 and 15
        (PagedKV, 32, 1, 0, None, 0),  # padding alone
        (ContiguousKV, 32, 1, 1024, None, 16),
        (ContiguousKV, 1, 1, 100, None, 2),
    ],
)
def test_trips_by_hand(kind: Any, rows: int, query: int, held: int, window: int | None, expected: int):
    unit = 16 if kind is PagedKV else 1024
    kv = jax.eval_shape(lambda: kind.zeros(caches.config(), 64, unit, jnp.float32))
    count = min(query, held)
    s = segment([held - count] * rows, [count] * rows, query, 64 if kind is PagedKV else 1)
    assert kv.trips(s, window) == expected


def test_gather_reads_once():
    kv = PagedKV.zeros(caches.config(), 64, 16, jnp.float32, attention="gather")
    assert kv.trips(segment([1000], [1], 1, 64), None) == 1
