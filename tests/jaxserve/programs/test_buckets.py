"""Which program a step needs. Oracle: the smallest sufficient bucket found by looking at all of them, and figures by hand."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets, powers
from models.errors import UserError

LADDER = Buckets(batches=(1, 2, 8), widths=(2, 5), chunk=(2, 8), page=4)
FULL = Buckets((1, 4), (2, 5), (8, 16), 4, prefills=(1, 2), mixed=(2, 4), drafts=3, steps=6)
ROWS, PIECES, TOKENS = range(1, 5), range(1, 12), (1, 8, 9, 20)


def test_powers():
    assert powers(1) == (1,)
    assert powers(5) == (1, 2, 4, 8)
    assert powers(8) == (1, 2, 4, 8)
    assert powers(1, smallest=2) == (2,)
    assert powers(3, smallest=2) == (2, 4)


def test_buckets():
    names = [(bucket.name, bucket.width) for bucket in LADDER.buckets()]
    shapes = ["decode 1", "decode 2", "decode 8", "prefill 2x8"]
    assert names == list(itertools.product(shapes, (2, 5)))
    assert LADDER.context == 20


def test_buckets_of_every_kind_cheapest_first():
    """By tokens of the padded step; a repeated decode counts each of its steps."""
    names = [bucket.name for bucket in FULL.buckets() if bucket.width == 5]
    assert names == [
        "decode 1",  # 1
        "verify 1x4",  # 4
        "decode 4",  # 4
        "decode 1, up to 6 times",  # 6
        "prefill 1x16",  # 16
        "verify 4x4",  # 16
        "decode 2 + prefill 1x16",  # 18
        "decode 4 + prefill 1x16",  # 20
        "verify 2x4 + prefill 1x16",  # 24
        "decode 4, up to 6 times",  # 24
        "prefill 2x16",  # 32
        "verify 4x4 + prefill 1x16",  # 32
        "decode 2 + prefill 2x16",  # 34
        "decode 4 + prefill 2x16",  # 36
        "verify 2x4 + prefill 2x16",  # 40
        "verify 4x4 + prefill 2x16",  # 48
        "prefill 8x16",  # 128
        "decode 2 + prefill 8x16",  # 130
        "decode 4 + prefill 8x16",  # 132
        "verify 2x4 + prefill 8x16",  # 136
        "verify 4x4 + prefill 8x16",  # 144
    ]
    assert len(FULL.buckets()) == 2 * len(names) == len(set(FULL.buckets()))


def test_decode_takes_the_smallest_that_suffices():
    for rows, tokens in itertools.product(range(1, 9), range(1, 21)):
        sufficient = [(b, w) for b in LADDER.batches for w in LADDER.widths if b >= rows and w * LADDER.page >= tokens]
        batch, width = min(sufficient)
        assert LADDER.decode(rows, tokens) == Bucket(((batch, 1),), width)


def test_verify_and_repeat_are_as_wide_as_decode():
    for rows, tokens in itertools.product(ROWS, TOKENS):
        decode = FULL.decode(rows, tokens)
        batch = decode.shape[0][0]
        assert FULL.verify(rows, tokens) == Bucket(((batch, 4),), decode.width, verify=True)
        assert FULL.repeated(rows, tokens) == Bucket(((batch, 1),), decode.width, steps=6)


@pytest.mark.parametrize(("tokens", "width"), [(1, 2), (8, 2), (9, 5), (20, 5)])
def test_prefill_changes_its_width_at_the_page_edge(tokens: int, width: int):
    assert LADDER.prefill(tokens) == Bucket(((2, 8),), width)


@pytest.mark.parametrize(("pieces", "rows"), [(None, 8), (1, 1), (2, 2), (3, 8), (8, 8), (100, 8)])
def test_prefill_takes_the_smallest_for_its_pieces(pieces: int | None, rows: int):
    assert FULL.prefill(9, pieces) == Bucket(((rows, 16),), 5)


@pytest.mark.parametrize("verify", [False, True])
def test_together_takes_the_smallest_that_suffices(verify: bool):
    """Of all compiled ones with room for the rows: those with room for the pieces, or else with the most of them; then the smallest."""
    mixed = [b for b in FULL.buckets() if len(b.shape) == 2 and b.verify == verify]
    for rows, pieces, tokens in itertools.product(ROWS, PIECES, TOKENS):
        fit = [b for b in mixed if b.shape[0][0] >= rows and b.width * 4 >= tokens]
        best = min(fit, key=lambda b: (-min(b.shape[1][0], pieces), b.width, b.tokens))
        assert FULL.together(rows, pieces, tokens, verify) == best


def test_what_was_not_compiled_together_is_none():
    assert FULL.together(5, 1, 1) is None and LADDER.together(1, 1, 1) is None
    assert Buckets((1,), (1,), (1, 8), 4, mixed=(1,)).together(1, 1, 1, verify=True) is None


def test_every_choice_is_a_bucket_that_is_compiled_and_every_bucket_a_choice():
    known = set(LADDER.buckets())
    assert {LADDER.decode(r, t) for r in range(1, 9) for t in range(1, 21)} | {LADDER.prefill(t) for t in range(1, 21)} == known
    chosen = {
        choose(rows, tokens) for choose in (FULL.decode, FULL.verify, FULL.repeated) for rows in ROWS for tokens in TOKENS
    }
    chosen |= {FULL.prefill(tokens, pieces) for tokens in TOKENS for pieces in PIECES}
    for rows, pieces, tokens, verify in itertools.product(ROWS, PIECES, TOKENS, (False, True)):
        found = FULL.together(rows, pieces, tokens, verify)
        assert found is not None
        chosen.add(found)
    assert chosen == set(FULL.buckets())


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: LADDER.decode(9, 1), "9 rows fit no program; the largest has 8"),
        (lambda: LADDER.decode(1, 21), "a sequence of 21 tokens fits no program; the longest holds 20"),
        (lambda: LADDER.prefill(21), "a sequence of 21 tokens fits no program; the longest holds 20"),
        (lambda: FULL.together(1, 1, 21), "a sequence of 21 tokens fits no program"),
        (lambda: FULL.verify(5, 1), "5 rows fit no program; the largest has 4"),
        (lambda: LADDER.verify(1, 1), "this ladder verifies no drafts; build it with drafts=k"),
        (lambda: LADDER.repeated(1, 1), "this ladder repeats no decode; build it with steps=n"),
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
        ({"mixed": (4, 2)}, r"mixed are \[4, 2\]; they must ascend"),
        ({"prefills": (0,)}, r"prefills are \[0\]"),
        ({"prefills": (1,)}, r"prefills are \[1\]; they must be smaller than the largest, which has 1 rows"),
        ({"page": 0}, "page is 0; it must be at least 1"),
        ({"drafts": -1}, "drafts is -1; it must be at least 0"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"batches": (1, 2), "chunk": (1, 1)}, "decode 1 is in it twice; give the prefill chunk at least 2 tokens a row"),
    ],
    ids=str,
)
def test_a_ladder_that_is_none_is_refused(change: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        Buckets(**{"batches": (1,), "widths": (1,), "chunk": (1, 8), "page": 4, **change})


@pytest.mark.parametrize("ladder", [LADDER, FULL], ids=["plain", "full"])
def test_through_json_and_back(ladder: Buckets):
    assert Buckets.from_json(json.loads(json.dumps(ladder.to_json()))) == ladder


def test_what_json_leaves_out_is_the_default():
    given = '{"batches": [1, 2, 8], "widths": [2, 5], "chunk": [2, 8], "page": 4}'
    assert Buckets.from_json(json.loads(given)) == LADDER


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": [1, "2"]}, r"batches is \[1, '2'\]; give whole numbers, in a list"),
        ({"batches": 4}, "batches is 4; give whole numbers, in a list"),
        ({"batches": [True]}, r"batches is \[True\]"),
        ({"batches": [1.5]}, r"batches is \[1.5\]"),
        ({"batches": None}, "batches is None"),
        ({"batches": [[1]]}, r"batches is \[\[1\]\]"),
        ({"batches": {"1": 2}}, r"batches is \{'1': 2\}"),
        ({"chunk": [1]}, r"chunk is \[1\]; give two whole numbers, rows and tokens"),
        ({"chunk": [1, 2, 3]}, "chunk is"),
        ({"page": [4]}, r"page is \[4\]; give a whole number"),
        ({"page": "4"}, "page is '4'"),
        ({"page": 0}, "page is 0; it must be at least 1"),
        ({"rungs": 3}, "'rungs' is no attribute of a ladder; known are batches, widths"),
    ],
    ids=str,
)
def test_nonsense_is_refused(change: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message) as caught:
        Buckets.from_json({**LADDER.to_json(), **change})
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


@pytest.mark.parametrize("given", [None, [1], "ladder", 3])
def test_what_is_no_object_is_refused(given: Any):
    with pytest.raises(UserError, match="is no ladder; give an object with batches, widths, chunk and page"):
        Buckets.from_json(given)


def test_what_is_missing_is_named():
    with pytest.raises(UserError, match="widths is missing; give batches, widths, chunk and page"):
        Buckets.from_json({"batches": [1], "chunk": [1, 8], "page": 4})
