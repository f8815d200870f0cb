"""Stop strings, against a search in the whole text written out place by place, for every way to cut a text into parts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.text.stop_strings import StopMatcher


def first(text: str, stops: tuple[str, ...], done: int = 0) -> tuple[int, int] | None:
    """(start, end) of the occurrence that is complete first, and longest among those that end there; none that ends at `done` or before."""
    for end in range(done + 1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts), end
    return None


def may_begin(text: str, stops: tuple[str, ...]) -> int:
    """Characters at the end of a text that begin a stop string without completing it."""
    return max(n for n in range(len(text) + 1) if n == 0 or any(len(stop) > n and stop.startswith(text[-n:]) for stop in stops))


def run(parts: list[str], stops: tuple[str, ...]) -> tuple[list[str], str | None]:
    """(what each part let through, the stop string); after the last part, what was held back."""
    matcher, shown = StopMatcher(stops), []
    for part in parts:
        text, stop = matcher.push(part)
        shown.append(text)
        if stop is not None:
            return shown, stop
    return [*shown, matcher.flush()], None


@pytest.mark.parametrize(
    ("parts", "shown", "stop"),
    [
        (["DEF", "G", "HI", "J"], ["", "", "", ""], "DEFGHIJ"),
        (["abcD", "EF", "GHIJxyz"], ["abc", "", ""], "DEFGHIJ"),
        (["DEF", "G", "HI", "K"], ["", "", "", "DEFGHIK", ""], None),  # the held tail is not lost
        (["DEF", "G", "HI"], ["", "", "", "DEFGHI"], None),  # nor at the end
        (["DE", "DE", "FG", "HI", "J!"], ["", "DE", "", "", ""], "DEFGHIJ"),  # it begins anew within itself
        (["DEFGHIJ"], [""], "DEFGHIJ"),
        (["abc", "", "xyz"], ["abc", "", "xyz", ""], None),
    ],
)
def test_a_string_across_parts(parts: list[str], shown: list[str], stop: str | None):
    assert run(parts, ("DEFGHIJ",)) == (shown, stop)


@pytest.mark.parametrize(
    ("text", "stops", "shown", "stop"),
    [
        ("xabcd", ("bc", "abcd"), "xa", "bc"),  # complete first, though the other begins before it
        ("xabc", ("bc", "abc", "c"), "x", "abc"),  # complete together: the longest
        ("aaab", ("aab",), "a", "aab"),
        ("abab", ("abac", "bab"), "a", "bab"),
        ("ab", ("ab", "ab"), "", "ab"),
        ("a🎉b", ("🎉",), "a", "🎉"),
        ("abc", (), "abc", None),
    ],
)
def test_several_strings(text: str, stops: tuple[str, ...], shown: str, stop: str | None):
    for cut in range(len(text) + 1):
        for parts in ([text[:cut], text[cut:]], list(text)):
            found = run(parts, stops)
            assert ("".join(found[0]), found[1]) == (shown, stop)


@settings(max_examples=1000, deadline=None)
@given(
    text=st.text("ab€", max_size=30),
    stops=st.lists(st.text("ab€", min_size=1, max_size=5), max_size=4).map(tuple),
    seed=st.integers(0, 2**32),
)
def test_any_text_cut_anyhow(text: str, stops: tuple[str, ...], seed: int):
    """Shown is the text before the first occurrence; at any time all of it but what may begin a stop string, and never more."""
    draw, parts, at = random.Random(seed), [], 0
    while at < len(text):
        parts.append(text[at : at + draw.randint(0, 6)])
        at += len(parts[-1])
    shown, stop = run(parts, stops)
    occurrence = first(text, stops)
    if occurrence is None:
        assert stop is None and "".join(shown) == text
    else:
        assert (stop, "".join(shown)) == (text[slice(*occurrence)], text[: occurrence[0]])
    for i in range(len(parts)):
        seen = "".join(parts[: i + 1])
        if occurrence is None or len(seen) < occurrence[1]:
            assert "".join(shown[: i + 1]) == seen[: len(seen) - may_begin(seen, stops)]


@settings(max_examples=300, deadline=None)
@given(
    before=st.text("ab", max_size=8),
    after=st.text("ab", max_size=8),
    stops=st.lists(st.text("ab", min_size=1, max_size=4)).map(tuple),
)
def test_what_is_complete_before_it_counts_is_text(before: str, after: str, stops: tuple[str, ...]):
    """An occurrence may begin in the part that did not count, but not end in it."""
    matcher = StopMatcher(stops)
    early, none = matcher.push(before, armed=False)
    assert early == before[: len(before) - may_begin(before, stops)]
    late, stop = matcher.push(after)
    text, occurrence = before + after, first(before + after, stops, done=len(before))
    assert none is None
    if occurrence is None:
        assert (early + late + matcher.flush(), stop) == (text, None)
    else:
        assert (early + late, stop) == (text[: occurrence[0]], text[slice(*occurrence)])
