"""The steps that a machine is calibrated on. Oracles: the ladder by hand, made-up programs and a made-up clock."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

from jaxserve.calibration.grid import Bench, Cell, cells, turns, work_of
from jaxserve.calibration.measured_points import chosen
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import Piece, Run

LADDER = Buckets((1, 8), (2, 4), (4, 16), 16, prefills=(2,), mixed=(8,), drafts=2, steps=3)


def test_every_program_at_every_context_that_its_rows_can_have():
    """Tables of 4 pages hold 64 tokens; a prefill needs 16, a verification 3; programs that repeat others are left out."""
    found = [(cell.bucket.name, cell.kind, cell.rows, cell.context) for cell in cells(LADDER, (2, 8, 64, 100))]
    assert found == [
        ("decode 1", "decode", 1, 2), ("decode 1", "decode", 1, 8), ("decode 1", "decode", 1, 64),
        ("verify 1x3", "verify", 1, 8), ("verify 1x3", "verify", 1, 64),
        ("decode 8", "decode", 8, 2), ("decode 8", "decode", 8, 8), ("decode 8", "decode", 8, 64),
        ("verify 8x3", "verify", 8, 8), ("verify 8x3", "verify", 8, 64),
        ("prefill 2x16", "prefill", 0, 64),
        ("decode 8 + prefill 2x16", "mixed", 8, 64),
        ("verify 8x3 + prefill 2x16", "verify", 8, 64),
        ("prefill 4x16", "prefill", 0, 64),
        ("decode 8 + prefill 4x16", "mixed", 8, 64),
        ("verify 8x3 + prefill 4x16", "verify", 8, 64),
    ]  # fmt: skip


def test_the_arguments_of_a_program():
    """Two rows decode with 31 tokens before, beside a piece of 5 tokens after 16; pages of the third row follow those of two others."""
    bucket = Bucket(((2, 1), (1, 16)), 3)
    cell = Cell(Run(bucket, range(2), (31, 31), None, [Piece(16, 5, 2)]), "mixed", 2, 32)
    decode, prompt = (work.segment for work in work_of(cell, 8))
    assert (decode.start.tolist(), decode.count.tolist(), decode.table.tolist()) == ([31, 31], [1, 1], [[0, 1, 2], [3, 4, 5]])
    assert (prompt.start.tolist(), prompt.count.tolist(), prompt.table.tolist()) == ([16], [5], [[6, 7, 0]])


def test_rounds_take_turns():
    """Times grow by one at each call of the clock; the benches alternate, and after each round of both something else has its turn."""
    order: list[str] = []
    ticks = itertools.count()

    def bench(name: str, extra: float) -> Bench:
        def program(kv: Any, work: Any) -> Any:
            order.append(name)
            return kv, (SimpleNamespace(tokens=np.zeros(1)),)

        made = cells(Buckets((1,), (4,), (1, 16), 16), (32,))[:1]
        times = iter(lambda: next(ticks) * extra, None)
        return Bench({made[0].bucket: program}, SimpleNamespace(units=4), made, lambda: next(times))  # type: ignore[arg-type]

    done: list[int] = []
    first, second = turns([bench("a", 1.0), bench("b", 2.0)], 3, done.append, lambda index: order.append(str(index)))
    assert order == ["a", "b", "0", "a", "b", "1", "a", "b", "2"] and sum(done) == 6
    assert (first.tolist(), second.tolist()) == ([[1.0]] * 3, [[2.0]] * 3)


def test_a_round_has_an_order_of_its_own_and_times_stay_with_their_cells():
    """The clock is set by the program that runs: cell i takes i seconds, whenever its turn comes."""
    grid = cells(Buckets((1, 2, 4, 8), (4,), (1, 16), 16), (16,))[:4]
    order: list[int] = []
    now = [0.0]

    def program(i: int) -> Any:
        def run(kv: Any, work: Any) -> Any:
            order.append(i)
            now[0] += i
            return kv, (SimpleNamespace(tokens=np.zeros(1)),)

        return run

    programs = {cell.bucket: program(i) for i, cell in enumerate(grid)}
    bench = Bench(programs, SimpleNamespace(units=4), grid, lambda: now[0])  # type: ignore[arg-type]
    (found,) = turns([bench], 5)
    assert found.tolist() == [[0.0, 1.0, 2.0, 3.0]] * 5
    rounds = [tuple(order[i : i + 4]) for i in range(0, 20, 4)]
    assert len(set(rounds)) > 1 and all(sorted(each) == [0, 1, 2, 3] for each in rounds)


def test_prompts_run_at_every_third_context():
    """Of 16, 32, 48 and 64 tokens: at 64 and 16. Rows without prompts run at all of them."""
    grid = chosen(cells(LADDER, (16, 32, 48, 64)))
    assert {cell.context for cell in grid if cell.kind == "decode"} == {16, 32, 48, 64}
    assert {cell.context for cell in grid if cell.run.pieces} == {16, 64}
