"""Steps of an engine's programs as they were measured here, each with what it ran: the data of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from costmodel.catalog import as_architecture
from costmodel.clock import RunQueue
from jaxserve.engine import Engine
from jaxserve.executed import Executed, Figures
from jaxserve.grid import Bench, Cell, cells, medians
from jaxserve.model import load_model
from jaxserve.programs import compile_programs
from jaxserve.setup import Bar, Setup
from models.checkpoint.random import RandomCheckpoint
from models.errors import UserError

SHALLOW = 3  # a model of this part of the layers is measured too: what does not shrink with it belongs to the program


class Point(NamedTuple):
    """A step that was measured.

    Attributes:
      whole: the model had all of its layers.
      figures: what it ran.
      seconds: the median of its rounds.
    """

    cell: Cell
    whole: bool
    figures: Figures
    seconds: float

    @property
    def decodes(self) -> bool:
        """Whether it is a decode step of the whole model."""
        return self.whole and self.cell.kind == "decode"


class Measured(NamedTuple):
    """All of them.

    Attributes:
      rounds: that they are medians of.
      contention: meanwhile, see `RunQueue`.
    """

    points: list[Point]
    rounds: int
    contention: float | None


def measure_points(setup: Setup, engine: Engine, contexts: Sequence[int], rounds: int, bar: Bar) -> Measured:
    """Every program of the ladder, and the decodes of a shallow model.

    Args:
      engine: whose programs they are; its own pool is not touched.
      contexts: tokens that rows hold.

    Raises:
      UserError: no program takes rows of such contexts.
    """
    model, pool, ladder = engine.model, engine.pool, engine.ladder
    config = model.config
    grid = cells(ladder, contexts)
    if not grid:
        raise UserError(f"contexts are {list(contexts)}; none fits programs of {ladder.chunk[1]} to {ladder.context} tokens")
    decodes = [cell for cell in grid if cell.kind == "decode"]
    buckets = dict.fromkeys(cell.bucket for cell in decodes)
    compiled = bar("compiling programs of a shallow model", len(buckets))
    few = config.first_layers(max(config.layers // SHALLOW, 1))
    shallow = load_model("shallow", dtype=model.dtype, context=model.context, checkpoint=RandomCheckpoint("shallow", few))
    cache = shallow.empty_pool(pool.units, pool.unit, pool.dtype)
    programs = compile_programs(shallow.step, shallow.serving, cache, buckets, done=lambda program: compiled(1))
    benches = [
        Bench(engine.programs, model.empty_pool(pool.units, pool.unit, pool.dtype), grid),
        Bench(programs, cache, decodes),
    ]
    done = bar("measuring steps", (rounds + 1) * (len(grid) + len(decodes)))
    with RunQueue() as queue:
        seconds = medians(benches, rounds, done)
    points = []
    for bench, shape, taken in zip(benches, (config, few), seconds, strict=True):
        executed = Executed(as_architecture(shape), ladder, dtype=setup.dtype, kv_dtype=pool.dtype)
        points += [
            Point(cell, shape is config, executed.run(cell.run), s) for cell, s in zip(bench.grid, taken.tolist(), strict=True)
        ]
    return Measured(points, rounds, queue.contention)
