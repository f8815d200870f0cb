"""What a run shares with itself. Oracle: every pair of prompts, token by token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jaxserve.load.warm import Beginnings, warm_tokens
from tests.jaxserve.load.records import record

prompts = st.lists(st.lists(st.integers(0, 3) | st.sampled_from([255, 256, 65536, 2**31]), min_size=1, max_size=8), max_size=25)


def naive(a: list[int], b: list[int]) -> int:
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return same


@given(prompts)
def test_the_longest_beginning_that_was_there_before(given: list[list[int]]):
    known = Beginnings()
    found = [known.add(prompt) for prompt in given]
    assert found == [max((naive(prompt, other) for other in given[:i]), default=0) for i, prompt in enumerate(given)]


def test_what_was_found_beyond_it():
    """Three requests: nothing found; all that it shares, and 4 tokens more; less than it shares."""
    records = [record(0), record(1, cached=12), record(2, cached=3)]
    assert warm_tokens(records, {0: 0, 1: 8, 2: 8}) == 4
