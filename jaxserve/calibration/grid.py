"""The steps that a machine is calibrated on: every program of a ladder with rows of several lengths, run by hand, in turns.

Nothing is scheduled: a cell is one program whose rows hold so many tokens. What a program takes does not depend on the values in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxserve.predict.executed import rows_of
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import Piece, Run
from jaxserve.programs.program_set import Programs, blank
from jaxserve.programs.step import Work
from models.layers import KV
from models.segment import Segment

Timer = Callable[[], float]


class Cell(NamedTuple):
    """A program, and what its rows hold.

    Attributes:
      run: as the engine would have it.
      kind: decode, prefill, mixed or verify.
      rows: that decode or verify.
      context: tokens of the longest row after the step.
    """

    run: Run
    kind: str
    rows: int
    context: int

    @property
    def bucket(self) -> Bucket:
        assert self.run.bucket is not None
        return self.run.bucket


def cells(ladder: Buckets, contexts: Sequence[int]) -> list[Cell]:
    """Every program with the widest tables, but for those that repeat others, at each of the contexts that its rows can have."""
    buckets = [bucket for bucket in ladder.buckets() if bucket.steps == 1 and bucket.width == ladder.widths[-1]]
    return [cell for bucket in buckets for cell in _of(bucket, ladder, contexts)]


def _of(bucket: Bucket, ladder: Buckets, contexts: Sequence[int]) -> Iterator[Cell]:
    rows, pieces = rows_of(bucket)
    kind = "verify" if bucket.verify else "mixed" if rows and pieces else "decode" if rows else "prefill"
    first, query = bucket.shape[0][1] if rows else 0, bucket.shape[-1][1]
    for context in contexts:
        if max(first, query) <= context <= ladder.context:
            counts = (first,) * rows if bucket.verify else None
            prompts = [Piece(context - query, query, rows + i) for i in range(pieces)]
            yield Cell(Run(bucket, range(rows), (context - first,) * rows, counts, prompts), kind, rows, context)


def work_of(cell: Cell, units: int) -> tuple[Work, ...]:
    """The arguments of a cell's program. Rows of a pool that is too small for them share pages, which costs what their own would."""
    run, work = cell.run, blank(cell.bucket, units)
    counts = run.counts or (1,) * len(run.starts)
    decodes = list(zip(run.starts, counts, strict=True))
    prompts = [(piece.start, piece.tokens) for piece in run.pieces]
    filled, before = [rows for rows in (decodes, prompts) if rows], 0
    for each, rows in zip(work, filled, strict=True):
        _fill(each.segment, rows, before, units)
        before += len(rows)
    return work


def _fill(segment: Segment, rows: Sequence[tuple[int, int]], before: int, units: int) -> None:
    """Rows of (tokens in the cache, tokens to run), with pages after those of `before` other rows."""
    width = segment.table.shape[1]
    for i, (start, count) in enumerate(rows):
        segment.start[i], segment.count[i] = start, count
        segment.table[i] = ((before + i) * width + np.arange(width)) % units


class Bench:
    """Programs of one model, and the cells that are to be run with them."""

    def __init__(self, programs: Programs, kv: KV, grid: Sequence[Cell], timer: Timer = time.perf_counter):
        self.grid, self._programs, self._kv, self._timer = grid, programs, kv, timer
        self._works = [work_of(cell, kv.units) for cell in grid]

    def round(self, draw: np.random.Generator, done: Callable[[int], None] = lambda count: None) -> np.ndarray:
        """s of each cell, f64 [cells], from the call until the tokens are on the host.

        Args:
          draw: the order. One of its own for each round, so that seconds in which the machine is slow don't always meet the same cells.
          done: called with 1 after each.
        """
        seconds = np.empty(len(self.grid))
        for i in draw.permutation(len(self.grid)).tolist():
            cell, work = self.grid[i], self._works[i]
            start = self._timer()
            self._kv, outputs = self._programs[cell.bucket](self._kv, work)
            for output in outputs:
                np.asarray(output.tokens)
            seconds[i] = self._timer() - start
            done(1)
        return seconds


def turns(
    benches: Sequence[Bench],
    rounds: int,
    done: Callable[[int], None] = lambda count: None,
    between: Callable[[int], None] = lambda index: None,
) -> list[np.ndarray]:
    """s of each bench's cells, f64 [rounds, cells], of rounds in which the benches take turns.

    Args:
      done: called with 1 after each time.
      between: called with its index after each round.
    """
    draw, found = np.random.default_rng(0), []
    for index in range(rounds):
        found.append([bench.round(draw, done) for bench in benches])
        between(index)
    return [np.stack(each) for each in zip(*found, strict=True)]
