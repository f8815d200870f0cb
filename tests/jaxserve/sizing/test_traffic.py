"""The requests that are sized for. Oracles: the harness's own generator, a trace written by hand, sums."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from jaxserve.load.arrivals import Poisson
from jaxserve.scheduling.request import Request
from jaxserve.sizing.traffic import Traffic, from_trace, judged, poisson, split
from models.errors import UserError

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    lines = [f"2023-11-16 18:15:{10 + 2 * i:02d}.0,{100 * (i + 1)},{10 * (i + 1)}\n" for i in range(5)]
    path.write_text(AZURE + "".join(lines))
    return path


def test_arrivals_are_those_of_the_harness():
    found = poisson(20.0, 768, 256, 50, seed=7)
    times = list(itertools.islice(Poisson(20.0).times(np.random.default_rng(7)), 50))
    assert [request.arrival for request in found.requests] == times
    assert {(len(r.prompt), r.limit) for r in found.requests} == {(768, 256)} and found.longest == 1023
    assert (found.rate, found.demand.prompt, found.demand.answer) == (20.0, 768, 256)


def test_another_rate_keeps_order_and_lengths():
    found = poisson(20.0, 8, 4, 30, seed=0)
    twice = found.at(40.0)
    assert [r.arrival * 2 for r in twice.requests] == pytest.approx([r.arrival for r in found.requests]) and twice.rate == 40.0
    again = found.at_once(70)
    assert [(r.id, r.arrival) for r in again.requests] == [(i, 0.0) for i in range(70)] and len(again.requests[69].prompt) == 8


def test_longer_is_the_same_again():
    """Two a second at 0.5 and 1.0 s: the second turn begins 0.5 s after the last, at 1.5 s."""
    found = Traffic((Request(0, range(3), 1, arrival=0.5), Request(1, range(4), 2, arrival=1.0)), "by hand", 2.0).longer(2)
    assert [(r.id, r.arrival, len(r.prompt)) for r in found.requests] == [(0, 0.5, 3), (1, 1.0, 4), (2, 2.0, 3), (3, 2.5, 4)]


def test_a_trace(trace: Path):
    """Four requests 2 s apart, 0.5 a second; 100 to 400 tokens; the fifth was not asked for."""
    found = from_trace(trace, 4, 1000, "llama")
    assert [(r.arrival, len(r.prompt), r.limit) for r in found.requests] == [
        (2.0 * i, 100 * (i + 1), 10 * (i + 1)) for i in range(4)
    ]
    assert (found.rate, found.demand.prompt, found.demand.answer) == (0.5, 250, 25)
    scaled = from_trace(trace, 5, 1000, "llama", time=0.5, length=0.1)
    assert (scaled.rate, scaled.longest) == (1.0, 50 + 5 - 1)


def test_a_trace_that_is_too_long(trace: Path):
    with pytest.raises(UserError, match=r"t\.csv line 4: 300 prompt tokens .* but llama takes 300; give --length-scale 0\."):
        from_trace(trace, 5, 300, "llama")


def test_a_trace_without_a_rate(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text(AZURE + "2023-11-16 18:15:10.0,5,5\n" * 3)
    with pytest.raises(UserError, match="its first 3 requests have no rate; give at least 2 that come at different times"):
        from_trace(path, 9, 100, "llama")


def test_how_a_context_divides():
    assert (split(1024, None, None), split(1024, 512, None), split(1024, None, 24)) == ((768, 256), (512, 512), (1000, 24))
    assert split(1024, 1000, 24) == (1000, 24)


@pytest.mark.parametrize(("context", "prompt", "answer"), [(1024, 512, 511), (8, 8, None), (8, None, 8), (1, None, None)])
def test_no_sequence_of_the_context(context: int, prompt: int | None, answer: int | None):
    with pytest.raises(
        UserError, match=rf"are no sequence of --context {context}; give lengths of at least 1 that add up to it"
    ):
        split(context, prompt, answer)


def test_who_is_judged():
    """Of 1,000 the first 200 and the last 100 are not; of two there is one."""
    assert (judged(1000), judged(2)) == (slice(200, 900), slice(0, 2))
    with pytest.raises(UserError, match="--requests is 1; it must be at least 2"):
        poisson(1.0, 1, 1, 1, 0)
