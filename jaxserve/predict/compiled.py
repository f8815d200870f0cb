"""A predictor from compiled programs: what their ledgers move and multiply, interpolated between the sizes that were compiled.

An engine without mixed programs runs a step as one decode of all rows, and a prefill for each piece of a prompt; so that is what a plan is
priced as. Bytes of a decode are linear in its rows and in the tokens that they hold, so between four programs the surface is bilinear.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from costmodel.cli.choices import choose_chip
from costmodel.compile.program import Platform, StepProgram
from costmodel.compile.targets import compile_for
from costmodel.hardware.chip import Chip
from costmodel.ledger.compiled import CompiledCost, extrapolate
from costmodel.ledger.ledger import ledger
from costmodel.study import FEW
from jaxserve.programs.dispatch import dispatch
from jaxserve.scheduling.plan import Plan
from models.config.model_config import ModelConfig
from models.errors import UserError


class Size(NamedTuple):
    """A program: `rows` rows that run `query` tokens each and then hold `context`."""

    rows: int
    query: int
    context: int


class Compiled:
    """s of plans (witness: compiled).

    Args:
      seconds: of programs by size: decodes (query 1) at every pair of some numbers of rows and some contexts, at least two of each; and
        prefills of one row at every pair of some queries and some contexts, where plans run prompts.

    Raises:
      UserError: a size is missing from the grid.
    """

    def __init__(self, seconds: Mapping[Size, float]):
        self._decode = _Surface({(s.rows, s.context): took for s, took in seconds.items() if s.query == 1}, "decodes")
        prefills = {(s.query, s.context): took for s, took in seconds.items() if s.query > 1 and s.rows == 1}
        self._prefill = _Surface(prefills, "prefills") if prefills else None

    def __call__(self, plan: Plan) -> float:
        """Raises UserError for a plan with prompts where no prefill was compiled, or with drafts."""
        total = 0.0
        for run in dispatch(plan):
            if run.counts is not None:
                raise UserError("a plan verifies drafts, for which no program was compiled; simulate without speculation")
            if run.starts:
                mean = sum(run.starts) / len(run.starts) + 1
                total += sum([self._decode(len(run.starts), mean + step) for step in range(run.steps)])
            for piece in run.pieces:
                if self._prefill is None:
                    raise UserError(
                        "a plan runs a prompt, and no prefill was compiled; compile some of one row and several tokens"
                    )
                total += self._prefill(piece.tokens, piece.start + piece.tokens)
        return total


class _Surface:
    """Bilinear between points of a grid, and on beyond its edges."""

    def __init__(self, points: Mapping[tuple[int, int], float], what: str):
        self._x, self._y = (sorted({point[axis] for point in points}) for axis in (0, 1))
        missing = [pair for pair in itertools.product(self._x, self._y) if pair not in points]
        if missing or min(len(self._x), len(self._y)) < 2:
            raise UserError(
                f"{what} were compiled at sizes {self._x} and contexts {self._y}"
                + (f", but not at {missing[0]}" if missing else "")
                + "; give every pair of at least two of each"
            )
        self._points = points

    def __call__(self, x: float, y: float) -> float:
        (x0, x1), (y0, y1) = _cell(self._x, x), _cell(self._y, y)
        right, up = (x - x0) / (x1 - x0), (y - y0) / (y1 - y0)
        at = self._points
        low = at[x0, y0] + right * (at[x1, y0] - at[x0, y0])
        high = at[x0, y1] + right * (at[x1, y1] - at[x0, y1])
        return low + up * (high - low)


def _cell(ticks: Sequence[int], at: float) -> tuple[int, int]:
    """The two neighbours between which it lies, or the outermost two."""
    i = min(max(bisect.bisect_right(ticks, at), 1), len(ticks) - 1)
    return ticks[i - 1], ticks[i]


def compile_sizes(
    config: ModelConfig, chip: str, sizes: Iterable[Size], done: Callable[[int], None] = lambda count: None
) -> dict[Size, float]:
    """Compile a step of each size for a chip and price its traffic and FLOPs on the data sheet (witness: compiled).

    Of a model of many like layers two programs of a few are compiled, and the line through them is followed, as in `costmodel.study`.

    Args:
      chip: a name for which there is a compiler here, or "host".

    Raises:
      UserError: no compiler for that chip; a context beyond the model's.
    """
    where = choose_chip(chip)
    if where.target is None:
        raise UserError(
            f"nothing here compiles for {where.chip.name}; take another chip, or install the extra gpu-targets or tpu-targets"
        )
    found = {}
    for size in sizes:
        costs = [
            _cost(where.target, _program(where.platform, config, size, layers), size)
            for layers in _layers(config, where.platform)
        ]
        whole = costs[0] if len(costs) == 1 else extrapolate(costs[0], costs[1], (*FEW, config.layers))
        found[size] = _seconds(whole, where.chip, _program(where.platform, config, size, config.layers).compute)
        done(1)
    return found


def _layers(config: ModelConfig, platform: Platform) -> tuple[int, ...]:
    alike = len(set(config.windows)) == 1 and config.layers > FEW[1] and platform != "tpu"
    return FEW if alike else (config.layers,)


def _program(platform: Platform, config: ModelConfig, size: Size, layers: int) -> StepProgram:
    return StepProgram.on(platform, config.first_layers(layers), ((size.rows, size.query),), size.context)


def _cost(target: str, program: StepProgram, size: Size) -> CompiledCost:
    compiled = compile_for(target, program, *program.abstract_args(), donate=program.donate)
    return CompiledCost.of(ledger(compiled.text, program.trips(size.context) or None))


def _seconds(cost: CompiledCost, chip: Chip, dtype: str) -> float:
    return max(cost.traffic.bytes / float(chip.bandwidth), cost.traffic.flops / float(chip.peak(dtype)))
