"""The workload of the engine's benchmark. Oracle: lengths worked out by hand, and the prompts' own text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.generation.prompts import builtin_prompts
from jaxserve.load.trace import Entry
from models.errors import UserError
from models.text.tokenizer import byte_tokenizer
from scripts.workload import SAMPLE, Item, Workload, draw, scaled

BYTES = byte_tokenizer(257)
TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9305900,396,109
2023-11-16 18:15:51.1805900,879,5
"""


def of(entries: list[Entry], **options) -> Workload:
    return draw(entries, BYTES, source="test", requests=len(entries), **options)


def lengths(workload: Workload) -> list[tuple[int, int]]:
    return [(len(item.prompt), item.output) for item in workload.items]


def test_a_trace_is_scaled_and_keeps_its_order_and_gaps(tmp_path: Path):
    """All three are drawn. At 1/10: 37.4, 39.6, 87.9 and 4.4, 10.9, 0.5 tokens; gaps of 4.25 and 0.25 s at half."""
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    found = Workload.of(path, BYTES, requests=3, context=100, scale=0.1, time_scale=0.5)
    assert lengths(found) == [(37, 4), (39, 10), (87, 1)]
    assert [item.arrival for item in found.items] == pytest.approx([0, 2.125, 2.25])
    assert (found.prompt_tokens, found.output_tokens, found.longest) == (163, 15, 88)
    assert found.source == "trace.csv" and found.to_json()["requests"] == 3


def test_the_default_scale_lets_the_longest_just_fit():
    """800 + 200 in 100 is 1/10; stretched by 3 it is 800 + 600, so 1/14; nothing is made longer than it was."""
    entries = [Entry(0, 800, 200), Entry(0, 10, 90)]
    assert lengths(of(entries, context=100)) == [(80, 20), (1, 9)]
    assert lengths(of(entries, context=100, stretch=3)) == [(57, 42), (1, 19)]
    assert lengths(of(entries, context=5000)) == [(800, 200), (10, 90)]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9999), st.integers(0, 999)), min_size=1, max_size=8),
    st.integers(2, 600),
    st.floats(0.1, 10),
)
def test_every_request_fits_at_the_default_scale(pairs: list[tuple[int, int]], context: int, stretch: float):
    found = of([Entry(0, prompt, output) for prompt, output in pairs], context=context, stretch=stretch)
    assert found.longest <= context and min(min(pair) for pair in lengths(found)) >= 1


def test_prompts_are_text_and_differ_and_come_again_with_the_seed():
    entries = [Entry(0, 60, 1)] * 20
    first, second, other = (of(entries, context=100, seed=seed) for seed in (1, 1, 2))
    assert first == second and first.items != other.items
    assert len({item.prompt for item in first.items}) > 10
    text = BYTES.decode(first.items[0].prompt)
    assert any(prompt.startswith(text[:15]) for prompt in builtin_prompts())
    long = of([Entry(0, 10_000, 1)], context=10_001)
    assert lengths(long) == [(10_000, 1)]  # more than all built-in ones together


def test_without_a_trace_a_sample_is_drawn_and_says_so():
    found = Workload.of(None, BYTES, requests=100, context=4306, scale=1.0)
    assert set(lengths(found)) <= set(SAMPLE) and "no trace was given" in found.source


def test_room_is_for_the_largest_requests_at_once():
    """3, 1 and 2 pages of 16: the two largest need 5."""
    items = tuple(Item((0,) * prompt, output) for prompt, output in ((40, 8), (10, 6), (10, 7)))
    assert Workload(items).room(2, 16) == 5 and Workload(items).room(9, 16) == 6


def test_steps_at_least():
    """facts.md section 6: 20, 50, 80 and 200 in one batch take 200 steps, and 350 useful tokens in 4 rows cannot end before the longest.

    In batches of two 50 + 200 = 250 steps; 350 / 2 = 175 is less than the longest.
    """
    load = Workload(tuple(Item((0,), output) for output in (20, 50, 80, 200)))
    assert load.steps(4) == (200, 200) and load.steps(2) == (250, 200) and load.steps(1) == (350, 350)


@pytest.mark.parametrize(("tokens", "scale", "expected"), [(10, 0.55, 5), (10, 0.01, 1), (0, 1.0, 1), (7, 1.0, 7)])
def test_scaled(tokens: int, scale: float, expected: int):
    assert scaled(tokens, scale) == expected


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"context": 50, "scale": 0.5}, "a request has 50 . 5 tokens and the context is 50"),
        ({"context": 50, "scale": 0.0}, "the scale of lengths is 0; it must be above 0"),
        ({"context": 50, "stretch": float("nan")}, "nan"),
        ({"context": 50, "time_scale": -1.0}, "the scale of times is -1"),
        ({"context": 50, "time_scale": 1.0}, "does not say when requests arrive"),
        ({"context": 1}, "a context of 1 tokens"),
    ],
)
def test_bad_input(options: dict, line: str):
    with pytest.raises(UserError, match=line):
        of([Entry(0, 100, 10)], **options)
