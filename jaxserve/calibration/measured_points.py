"""Steps of an engine's programs as they were measured here, each with what it ran: the data of a calibration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.arch.catalog import as_architecture
from costmodel.calibration.noise import Noise, noise
from costmodel.hardware.clock import RunQueue
from jaxserve.calibration.grid import Bench, Cell, cells, turns
from jaxserve.engine.build import EngineBuild
from jaxserve.engine.engine import Engine
from jaxserve.engine.model import load_model
from jaxserve.predict.executed import Executed, Figures
from jaxserve.programs.program_set import compile_programs
from jaxserve.programs.progress import Bar, Compiling
from models.checkpoint.base import RandomCheckpoint
from models.errors import UserError

PROMPTS = 3  # programs with pieces of prompts take longest and differ least: they run at this part of the contexts
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
      noise: of the clock, over these rounds.
      contention: meanwhile, see `RunQueue`.
    """

    points: list[Point]
    rounds: int
    noise: Noise
    contention: float | None


def measure_points(
    setup: EngineBuild,
    engine: Engine,
    contexts: Sequence[int],
    rounds: int,
    bar: Bar,
    between: Callable[[int], None] = lambda index: None,
) -> Measured:
    """Every program of the ladder, and the decodes of a shallow model.

    Args:
      engine: whose programs they are; its own pool is not touched.
      contexts: tokens that rows hold.
      rounds: after one that does not count.
      between: called with its index after each round.

    Raises:
      UserError: no program takes rows of such contexts.
    """
    model, pool, ladder = engine.model, engine.pool, engine.ladder
    config = model.config
    grid = chosen(cells(ladder, contexts))
    if not grid:
        raise UserError(f"contexts are {list(contexts)}; none fits programs of {ladder.chunk[1]} to {ladder.context} tokens")
    decodes = [cell for cell in grid if cell.kind == "decode"]
    buckets = dict.fromkeys(cell.bucket for cell in decodes)
    few = config.first_layers(max(config.layers // SHALLOW, 1))
    shallow = load_model("shallow", dtype=model.dtype, context=model.context, checkpoint=RandomCheckpoint("shallow", few))
    cache = shallow.empty_pool(pool.units, pool.unit, pool.dtype)
    kept = setup.compile_cache()
    compiling = Compiling(bar, buckets, "compiling programs of a shallow model")
    programs = compile_programs(shallow.step, shallow.serving, cache, buckets, done=compiling, cache=kept)
    if kept:
        kept.tell()
    benches = [
        Bench(engine.programs, model.empty_pool(pool.units, pool.unit, pool.dtype), grid),
        Bench(programs, cache, decodes),
    ]
    count, start = len(grid) + len(decodes), time.perf_counter()
    turns(benches, 1, bar("warming up, steps", count))
    minutes = rounds * (time.perf_counter() - start) / 60
    done = bar(f"measuring steps, about {minutes:.1f} min and an engine's runs, steps", rounds * count)
    with RunQueue() as queue:
        times = turns(benches, rounds, done, between)
    points = []
    for bench, shape, taken in zip(benches, (config, few), times, strict=True):
        executed = Executed(as_architecture(shape), ladder, dtype=setup.dtype, kv_dtype=pool.dtype)
        points += [
            Point(cell, shape is config, executed.run(cell.run), s)
            for cell, s in zip(bench.grid, np.median(taken, axis=0).tolist(), strict=True)
        ]
    return Measured(points, rounds, noise(np.concatenate(times, axis=1)), queue.contention)


def chosen(grid: Sequence[Cell]) -> list[Cell]:
    """All cells without prompts, and those with prompts at the longest context and every third one below."""
    contexts = sorted({cell.context for cell in grid})[::-PROMPTS]
    return [cell for cell in grid if not cell.run.pieces or cell.context in contexts]
