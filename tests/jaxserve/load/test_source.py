"""What is asked. Oracles: lengths by hand; scales that are tried one by one; prompts compared token by token."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.load.source import Alphabet, Drawn, Span, Traced
from jaxserve.load.trace import Blocks, Entry
from models.errors import UserError

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{40 + i}.0,{prompt},{output}\n"
    for i, (prompt, output) in enumerate([(100, 10), (900, 100), (300, 7), (1, 0)])
)
MOONCAKE = '{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}\n' * 2 + "\n"


def traced(tmp_path: Path, text: str, count: int = 99, **scales: float) -> Traced:
    path = tmp_path / "trace"
    path.write_text(text)
    return Traced.read(path, count, **scales)


def test_lengths_are_drawn():
    source = Drawn(Span(3, 5), Span(2, 2))
    found = list(itertools.islice(source.requests(np.random.default_rng(0)), 300))
    counts = np.bincount([len(request.prompt) for request in found])
    assert len(counts) == 6 and counts[:3].sum() == 0 and counts[3:].min() > 70 and {request.limit for request in found} == {2}
    assert [request.id for request in found] == list(range(300))
    tokens = [token for request in found for token in request.prompt]
    assert len(set(tokens)) == len(tokens)  # nobody begins like another


@pytest.mark.parametrize(("text", "span"), [("7", Span(7, 7)), (" 3-9 ", Span(3, 9))])
def test_spans(text: str, span: Span):
    assert Span.parse(text, "--prompt") == span and Span.parse(str(span), "--prompt") == span


@pytest.mark.parametrize("text", ["", "0", "5-3", "-3", "3-", "a-b", "1.5", "1-2-3"])
def test_no_spans(text: str):
    with pytest.raises(UserError, match="--prompt"):
        Span.parse(text, "--prompt")


def test_scales(tmp_path: Path):
    source = traced(tmp_path, AZURE, 3, time=0.5, length=0.1)
    found = list(source.requests())
    assert [(len(r.prompt), r.limit, r.arrival) for r in found] == [(10, 1, 0.0), (90, 10, 0.5), (30, 1, 1.0)]
    assert source.to_json() == {"kind": "trace", "trace": "trace", "time_scale": 0.5, "length_scale": 0.1}


def test_a_request_that_does_not_fit_is_named_by_its_line(tmp_path: Path):
    """Line 3 asks for 900 + 100: 999 are run. The scale that is offered fits, and a little more does not."""
    source = traced(tmp_path, AZURE)
    source.check(999, "tiny")
    with pytest.raises(UserError, match="tiny takes 998"):  # the prompt alone would fit
        source.check(998, "tiny")
    with pytest.raises(
        UserError, match=r"trace line 3: 900 prompt tokens and 100 to follow need a context of 999, but tiny takes 500"
    ) as no:
        source.check(500, "tiny")
    (offered,) = re.findall(r"--length-scale ([\d.]+)", str(no.value))
    traced(tmp_path, AZURE, length=float(offered)).check(500, "tiny")
    assert float(offered) == 0.5
    with pytest.raises(
        UserError, match=r"900 prompt tokens and 100 to follow, 630 and 70 at the length scale 0\.7 need a context of 699"
    ):
        traced(tmp_path, AZURE, length=0.7).check(500, "tiny")


@given(st.integers(2, 2000))
def test_the_offered_scale_fits(context: int):
    lines = [(i, entry) for i, entry in enumerate(_entries())]
    source = Traced("trace", tuple(lines))
    try:
        source.check(context, "tiny")
    except UserError as error:
        offered = re.findall(r"--length-scale ([\d.e-]+)", str(error))
        assert offered or context < 12, error
        for scale in offered:
            Traced("trace", tuple(lines), length=float(scale)).check(context, "tiny")


def _entries() -> list[Entry]:
    return [Entry(0.0, 100, 10), Entry(1.0, 1100, 500, (0, 1, 2)), Entry(2.0, 3, 900)]


def test_lines_are_those_of_the_file(tmp_path: Path):
    """From 1, a header counted, in either form; empty ones at the end are none."""
    with pytest.raises(UserError, match="trace line 1: 1100"):
        traced(tmp_path, MOONCAKE).check(64, "tiny")
    assert [line for line, _ in traced(tmp_path, MOONCAKE).lines] == [1, 2]
    assert [line for line, _ in traced(tmp_path, AZURE).lines] == [2, 3, 4, 5]


def test_a_scale_that_makes_no_sense(tmp_path: Path):
    with pytest.raises(UserError, match="length scale"):
        traced(tmp_path, AZURE, length=0.0)
    with pytest.raises(UserError, match="time scale"):
        traced(tmp_path, AZURE, time=-1.0)


def test_prompts_keep_what_they_share_and_nothing_else():
    """Two prompts of equal first blocks; another key makes another prompt; ids are those of the model, without those to avoid."""
    letters, others = Alphabet(96, 5, (1, 6)), Alphabet(96, 6, (1, 6))
    one, two = letters.spell(Blocks((0, 1), 60, 32)), letters.spell(Blocks((0, 2), 60, 32))
    assert one[:32] == two[:32] and one[32:] != two[32:]
    assert others.spell(Blocks((0, 1), 60, 32))[:4] != one[:4]
    assert letters.spell(range(10, 14)) == letters.spell((10, 11, 12, 13))
    long = letters.spell(range(100_000))
    counts = np.bincount(long, minlength=96)
    assert (
        counts[[1, 6]].sum() == 0 and np.delete(counts, [1, 6]).min() > 900
    )  # all of the others, about equally often: 1,064 each
    assert max(long) == 95
    assert len(set(zip(long, long[1:], long[2:], strict=False))) > 90_000  # and in no pattern


def test_no_letters():
    with pytest.raises(UserError, match="leaves none"):
        Alphabet(2, 0, (0, 1))
