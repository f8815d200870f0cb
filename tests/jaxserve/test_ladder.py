"""Which program a step needs. Oracle: the smallest sufficient bucket found by looking at all of them, and figures by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from jaxserve.ladder import Bucket, Ladder, powers
from models.errors import UserError

LADDER = Ladder(batches=(1, 2, 8), widths=(2, 5), chunk=(2, 8), page=4)


def test_powers():
    assert powers(1) == (1,)
    assert powers(5) == (1, 2, 4, 8)
    assert powers(8) == (1, 2, 4, 8)
    assert powers(1, smallest=2) == (2,)
    assert powers(3, smallest=2) == (2, 4)


def test_buckets():
    mixed = Bucket(((4, 1), (1, 16)), 5)
    assert mixed.tokens == 20 and mixed.name == "decode 4 + prefill 1x16"
    assert Bucket(((64, 1),), 5).name == "decode 64"
    names = [(bucket.name, bucket.width) for bucket in LADDER.buckets()]
    shapes = ["decode 1", "decode 2", "decode 8", "prefill 2x8"]
    assert names == list(itertools.product(shapes, (2, 5)))
    assert LADDER.context == 20


def test_decode_takes_the_smallest_that_suffices():
    for rows, tokens in itertools.product(range(1, 9), range(1, 21)):
        sufficient = [(b, w) for b in LADDER.batches for w in LADDER.widths if b >= rows and w * LADDER.page >= tokens]
        batch, width = min(sufficient)
        assert LADDER.decode(rows, tokens) == Bucket(((batch, 1),), width)


@pytest.mark.parametrize(("tokens", "width"), [(1, 2), (8, 2), (9, 5), (20, 5)])
def test_prefill_changes_its_width_at_the_page_edge(tokens: int, width: int):
    assert LADDER.prefill(tokens) == Bucket(((2, 8),), width)


def test_every_choice_is_a_bucket_that_is_compiled():
    known = set(LADDER.buckets())
    assert {LADDER.decode(r, t) for r in range(1, 9) for t in range(1, 21)} | {LADDER.prefill(t) for t in range(1, 21)} == known


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: LADDER.decode(9, 1), "9 rows fit no program; the largest has 8"),
        (lambda: LADDER.decode(1, 21), "a sequence of 21 tokens fits no program; the longest holds 20"),
        (lambda: LADDER.prefill(21), "a sequence of 21 tokens fits no program; the longest holds 20"),
    ],
)
def test_what_nothing_fits_is_refused(ask: Any, message: str):
    with pytest.raises(UserError, match=message) as caught:
        ask()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": ()}, r"batches are \[\]"),
        ({"batches": (0, 1)}, r"batches are \[0, 1\]; they must ascend from at least 1"),
        ({"batches": (2, 1)}, r"batches are \[2, 1\]"),
        ({"batches": (1, 1)}, r"batches are \[1, 1\]"),
        ({"widths": (0,)}, r"widths are \[0\]"),
        ({"chunk": (1, 0)}, "the prefill chunk is 1x0; both must be at least 1"),
    ],
)
def test_a_ladder_that_is_none_is_refused(change: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        Ladder(**{"batches": (1,), "widths": (1,), "chunk": (1, 8), "page": 4, **change})
