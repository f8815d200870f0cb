"""Drafts by prompt lookup. Oracle: going through the whole text for every suffix, and copying what followed token by token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.speculative.ngram import NGram
from models.errors import UserError


def naive(tokens: list[int], s: NGram) -> tuple[int, ...]:
    """For the longest suffix first: the last place before the end where it stood, and what followed there, the copy included."""
    for size in range(s.longest, s.shortest - 1, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if size <= len(tokens) and tokens[end - size : end] == tokens[len(tokens) - size :]:
                text = list(tokens)
                for _ in range(s.drafts):
                    text.append(text[end])
                    end += 1
                return tuple(text[len(tokens) :])
    return ()


@st.composite
def lookups(draw: Any) -> tuple[NGram, list[list[int]]]:
    shortest = draw(st.integers(1, 3))
    found = NGram(draw(st.integers(1, 6)), draw(st.integers(shortest, 4)), shortest)
    return found, draw(st.lists(st.lists(st.integers(0, draw(st.integers(0, 4))), max_size=12), max_size=8))


@given(lookups())
@settings(max_examples=300, deadline=None)
def test_drafts_equal_the_search_through_the_text_however_it_came(case: tuple[NGram, list[list[int]]]):
    """After every push, and with one token at a time."""
    found, parts = case
    lookup, single, text = found.begin(parts[0] if parts else ()), found.begin(()), list(parts[0] if parts else ())
    single.push(text)
    for part in parts[1:]:
        assert lookup.draft() == single.draft() == naive(text, found)
        lookup.push(part)
        for token in part:
            single.push([token])
        text += part
    assert lookup.draft() == single.draft() == naive(text, found)
    assert lookup.tokens == text


@pytest.mark.parametrize(
    ("tokens", "given", "expected"),
    [
        ([1, 2, 3, 4, 9, 1, 2, 3], {}, (4, 9, 1, 2)),
        ([1, 2, 3, 4, 9, 1, 2, 3], {"drafts": 2}, (4, 9)),
        ([1, 2, 5, 1, 2, 6, 1, 2], {"drafts": 1}, (6,)),  # the most recent of two
        ([7, 1, 2, 5, 8, 2, 6, 1, 2], {"drafts": 1}, (5,)),  # two tokens alike beat a more recent one
        ([7, 1, 2, 5, 8, 2, 6, 1, 2], {"drafts": 1, "longest": 1}, (6,)),
        ([1, 2, 3, 1], {"shortest": 2}, ()),
        ([4, 4], {}, (4, 4, 4, 4)),  # a text that repeats itself goes on so
        ([3, 1, 2, 1, 2], {"drafts": 5}, (1, 2, 1, 2, 1)),
        ([1, 2, 3], {}, ()),
        ([1], {}, ()),
        ([], {}, ()),
    ],
    ids=str,
)
def test_drafts_by_hand(tokens: list[int], given: dict[str, int], expected: tuple[int, ...]):
    assert NGram(**given).begin(tokens).draft() == expected


def test_two_sequences_know_nothing_of_each_other():
    drafter = NGram()
    a, b = drafter.begin([1, 2, 1]), drafter.begin([3])
    b.push([1])
    assert a.draft() == (2, 1, 2, 1) and b.draft() == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"drafts": 0}, "drafts is 0; it must be a whole number of at least 1"),
        ({"shortest": 0}, "shortest is 0; it must be a whole number of at least 1"),
        ({"longest": 1, "shortest": 2}, "the last 1 to 2 tokens; longest must be at least shortest"),
    ],
)
def test_settings_that_find_nothing_are_refused(given: dict[str, int], message: str):
    with pytest.raises(UserError, match=message) as caught:
        NGram(**given)
    assert "\n" not in str(caught.value)
