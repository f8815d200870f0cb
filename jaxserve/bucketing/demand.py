"""What programs a run of plans asks for: how often each shape, and what its rows held, summed up so that memory stays flat."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from costmodel.analytical.features import StepFeatures
from jaxserve.predict.analytical import Analytical
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.scheduling.plan import Plan


def every_shape(rows: int, chunk: tuple[int, int], page: int, widths: tuple[int, ...], *, together: bool) -> Buckets:
    """The ladder in which each step finds a program with as many rows as it has: no limit on programs.

    Args:
      rows: the most that decode at once.
      chunk: (rows, query) of the largest prefill.
      widths: of tables, in pages.
      together: decodes and prompts of a step run as one program.
    """
    batches = tuple(range(1, rows + 1))
    return Buckets(batches, widths, chunk, page, tuple(range(1, chunk[0])), batches if together else ())


@dataclasses.dataclass
class Cell:
    """All runs of one shape that were bound by the same roof, so that their time is that of their mean.

    Attributes:
      count: of runs.
      live: sum of what was asked for.
      filled: the same with each piece of a prompt filled up to the program's tokens a row.
    """

    count: int
    live: list[float]
    filled: list[float]

    def mean(self, *, filled: bool) -> StepFeatures:
        tokens, samples, *attention = [figure / self.count for figure in (self.filled if filled else self.live)]
        return StepFeatures(tokens, samples, tuple(attention))


class Demand:
    """Collects what plans ask for, and says what each takes where every shape is compiled: a predictor for a simulation.

    Args:
      predictor: of a ladder of every shape.
    """

    def __init__(self, predictor: Analytical):
        self.predictor = predictor
        self._cells: dict[tuple[Bucket, bool], Cell] = {}

    def __call__(self, plan: Plan) -> float:
        """Seconds of a plan. One that repeats steps or verifies drafts is none of those that are collected here."""
        if plan.steps > 1 or plan.verifies:
            raise ValueError(f"plan {plan.step} repeats steps or verifies drafts, which bucket economics has no shapes for")
        predictor, seconds = self.predictor, 0.0
        for run in dispatch(plan, predictor.ladder):
            assert run.bucket is not None
            live = predictor.load(run.starts, None, run.pieces)
            filled = predictor.run_load(run)
            memory, compute, link = predictor.roofs(filled)
            seconds += max(memory, compute, link)
            key = run.bucket, memory >= compute
            sums, more = [live.tokens, live.samples, *live.attention], [filled.tokens, filled.samples, *filled.attention]
            cell = self._cells.get(key)
            if cell is None:
                self._cells[key] = Cell(1, sums, more)
            else:
                cell.count += 1
                cell.live = list(map(float.__add__, map(float, cell.live), map(float, sums)))
                cell.filled = list(map(float.__add__, map(float, cell.filled), map(float, more)))
        return seconds

    @property
    def cells(self) -> Mapping[Bucket, list[Cell]]:
        """By the shape that was asked for."""
        found: dict[Bucket, list[Cell]] = {}
        for (bucket, _), cell in self._cells.items():
            found.setdefault(bucket, []).append(cell)
        return found


def rows_and_pieces(bucket: Bucket) -> tuple[int, int]:
    """(rows that decode, pieces of prompts) of a program that verifies nothing."""
    rows = sum(rows for rows, query in bucket.shape if query == 1)
    return rows, sum(rows for rows, query in bucket.shape if query > 1)
