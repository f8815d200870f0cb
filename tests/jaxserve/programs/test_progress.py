"""The bar of programs. Oracle: times worked out by hand, on a clock that is set."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from costmodel.compile.xla import XlaTotals
from costmodel.terminal import cli
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.executable import Executable
from jaxserve.programs.program_set import Program, in_turn
from jaxserve.programs.progress import Compiling

BUCKETS = [Bucket(((rows, 1),), 4) for rows in (1, 2, 4, 8)] + [Bucket(((2, 16),), 4)]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def compiling(clock: Clock, **options: Any) -> tuple[Compiling, list[int]]:
    done: list[int] = []

    def bar(what: str, total: int, note: Callable[[], str] = str) -> Callable[[int], None]:
        assert (what, total) == ("compiling programs", 5)
        return done.append

    return Compiling(bar, BUCKETS, clock=clock, **options), done


def ready(bucket: Bucket, seconds: float, kept: bool = False) -> Program:
    return Program(bucket, None, None, Executable(None, XlaTotals(), 0, seconds, kept), [])  # type: ignore[arg-type]


def test_the_last_of_a_ladder_comes_first():
    assert in_turn([*BUCKETS, BUCKETS[0]]) == BUCKETS[::-1]


def test_what_is_left_is_told_by_what_was_done(clock: Clock):
    """Two threads. Programs of 10 and 14 s: 12 s on average."""
    one, done = compiling(clock, threads=2)
    assert one.left is None and one.note() == "now prefill 2x16, decode 8"
    clock.now += 10
    one(ready(BUCKETS[4], 10))
    # decode 8 has run 10 s and is expected to end now; three wait or begin: 3 x 10 s for two threads
    assert one.left == pytest.approx(15) and one.note() == "about 15 s left; now decode 8, decode 4"
    clock.now += 4
    one(ready(BUCKETS[3], 14))
    # decode 4 has run 4 of 12 s, decode 2 begins, decode 1 waits: (8 + 12 + 12) / 2
    assert one.left == pytest.approx(16) and one.note() == "about 16 s left; now decode 4, decode 2"
    clock.now += 8
    one(ready(BUCKETS[2], 12))
    assert one.left == pytest.approx(12)  # decode 2 has run 8 s, decode 1 begins: the longer of 4 and 12
    clock.now += 4
    one(ready(BUCKETS[1], 12))
    clock.now += 20  # longer than those before
    assert one.left == 0 and one.note() == "nearly ready; now decode 1"
    one(ready(BUCKETS[0], 24))
    assert one.note() == "" and done == [1] * 5


def test_programs_that_were_kept_say_nothing_of_those_that_are_compiled(clock: Clock):
    one, _ = compiling(clock, threads=1)
    clock.now += 0.5
    one(ready(BUCKETS[4], 0.5, kept=True))
    assert one.left == pytest.approx(2)  # four more like it
    clock.now += 10
    one(ready(BUCKETS[3], 10))
    assert one.left == pytest.approx(30)


def test_the_note_stands_behind_the_bar_and_is_cut_at_80_columns():
    bars = cli.Bars()
    out = io.StringIO()
    bars.progress.live.console = Console(file=out, width=80)
    bars.bar("compiling programs", 5, lambda: "about 35 s left; now " + "decode 64, " * 20)(2)
    bars.bar("loading", 5)
    Console(file=out, width=80).print(bars.progress.get_renderable())
    first, second = out.getvalue().splitlines()
    assert "2/5" in first and "about 35 s left" in first and len(first) <= 80 and first.rstrip().endswith("…")
    assert "0/5" in second
