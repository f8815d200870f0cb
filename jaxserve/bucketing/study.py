"""The study behind `python -m jaxserve.buckets`: a trace is simulated as if every shape were compiled, then a few are chosen."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.arch.deployment import Deployment, Storage
from costmodel.capacity import fit
from costmodel.cli.choices import choose_chip, choose_model
from costmodel.hardware.chip import Chip
from jaxserve.bucketing.demand import Demand, every_shape
from jaxserve.bucketing.economics import Choice, Economics, least_programs
from jaxserve.kv.paged import Paged
from jaxserve.load.served import REFUSED
from jaxserve.load.trace import count_lines, read_trace, requests
from jaxserve.predict.analytical import Analytical, Attention
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import Run, dispatch
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.registry import make_policy, mixes, takes
from jaxserve.scheduling.state import State
from jaxserve.simulator.run import SimulationResult, simulate
from models.errors import UserError

POOL = 0.9  # of the memory that weights leave, for KV; the rest is for what programs need beside

Bar = Callable[[str, int], Callable[[int], None]]


@dataclasses.dataclass(frozen=True)
class BucketingSpec:
    """The options of the command; see its --help.

    Attributes:
      chunk: (rows, query) of the largest prefill.
      pages: of the pool; None for what fits beside the weights.
      served: requests to read; None for all.
    """

    trace: Path
    model: str
    chip: str
    programs: int
    policy: str
    rows: int
    page: int
    pages: int | None
    chunk: tuple[int, int]
    budget: int
    attention: Attention
    prefix: bool
    served: int | None
    time_scale: float
    length_scale: float
    dtype: str
    kv_dtype: str | None
    prompts: tuple[int, ...]

    @property
    def together(self) -> bool:
        """Decodes and prompts of a step run as one program, so that weights are read once for both."""
        return mixes(self.policy) and self.attention == "blockwise"


class Cliff(NamedTuple):
    """A prompt alone on a ladder, all of it in one step.

    Attributes:
      runs: its programs.
      tokens, padded: that they compute, and of them padding.
      seconds, wasted: that they take, and of them those that go to padding.
    """

    prompt: int
    runs: tuple[Run, ...]
    tokens: int
    padded: int
    seconds: float
    wasted: float


class Study(NamedTuple):
    """What was found.

    Attributes:
      context: tokens of the longest sequence.
      pages: of the pool.
      run: totals of the simulation.
      best, powers, every: ladders: the one that was looked for, the usual one with as many programs, and all there could be.
    """

    asked: BucketingSpec
    chip: Chip
    context: int
    pages: int
    run: SimulationResult
    economics: Economics
    best: Choice
    powers: Choice
    every: Choice
    cliffs: tuple[Cliff, ...]

    @property
    def refused(self) -> int:
        """Requests longer than the context."""
        return self.run.ends.get(REFUSED, 0)

    def wasted(self, choice: Choice) -> float:
        """Seconds of a ladder that go to padding."""
        return choice.seconds - self.economics.live


def study(asked: BucketingSpec, bar: Bar) -> Study:
    """Simulate and choose.

    Raises:
      UserError: a model, chip or trace that is none; sizes that do not go together; a pool for which the chip has no room.
    """
    least_programs(asked.programs, together=asked.together)
    model, chip = choose_model(asked.model), choose_chip(asked.chip).chip
    held = Deployment(model.architecture, Storage.of(asked.dtype, asked.kv_dtype))
    if asked.chunk[1] > (most := model.architecture.max_positions):
        raise UserError(f"--chunk has {asked.chunk[1]} tokens of a prompt; {asked.model} takes at most {most}, so lower it")
    pages = asked.pages or _pages(asked, chip, held)
    if (pool := pages * asked.page * held.kv_bytes_per_token) > float(chip.memory):
        raise UserError(
            f"--pages is {pages}: {pool / 1e9:.4g} GB of KV, and {chip.name} has {float(chip.memory) / 1e9:.4g} GB; give at most "
            f"{int(float(chip.memory) / (asked.page * held.kv_bytes_per_token))}"
        )
    context = min(model.architecture.max_positions, pages * asked.page)
    width = -(-context // asked.page)
    if max(asked.prompts, default=0) > context:
        more = "; give shorter ones" + (
            ", or more --pages" if asked.pages and context < model.architecture.max_positions else ""
        )
        raise UserError(f"--prompts has {max(asked.prompts)} tokens; the longest sequence here holds {context}{more}")
    widths = tuple(range(1, width + 1)) if asked.attention == "gather" else (width,)
    ladder = every_shape(asked.rows, asked.chunk, asked.page, widths, together=asked.together)
    predictor = Analytical(
        model.best, chip, dtype=asked.dtype, kv_dtype=asked.kv_dtype, ladder=ladder, attention=asked.attention
    )
    demand = Demand(predictor)
    policy = _policy(asked, context, chip, held)
    workers = 2 if isinstance(policy, Disaggregated) else 1
    state = State.of(*[Paged.of(pages, asked.page, prefix=asked.prefix)] * workers)
    entries = itertools.islice(read_trace(asked.trace), asked.served)
    coming = requests(entries, time=asked.time_scale, length=asked.length_scale)
    advance = bar("simulating, requests", min(count_lines(asked.trace), asked.served or sys.maxsize))
    run = simulate(policy, state, coming, demand, served=lambda _: advance(1))
    economics = Economics(demand)
    best = economics.best(asked.programs)
    powers, every = economics.powers(asked.programs), economics.of(ladder)
    cliffs = tuple(cliff(prompt, best.ladder, predictor) for prompt in asked.prompts)
    return Study(asked, chip, context, pages, run, economics, best, powers, every, cliffs)


def cliff(prompt: int, ladder: Buckets, predictor: Analytical) -> Cliff:
    """What a prompt of so many tokens runs on a ladder. `predictor` may be of another ladder with the same largest prefill."""
    found = dispatch(Plan(0, ids=(0,), starts=(0,), counts=(prompt,), draws=(1,)), ladder)
    tokens, seconds, wasted = 0, 0.0, 0.0
    for run in found:
        assert run.bucket is not None
        live = predictor.load(run.starts, None, run.pieces)
        took = predictor.seconds(predictor.padded(predictor.run_load(run), run.bucket))
        tokens, seconds, wasted = tokens + run.bucket.tokens, seconds + took, wasted + took - predictor.seconds(live)
    return Cliff(prompt, tuple(found), tokens, tokens - prompt, seconds, wasted)


def shapes(cliff: Cliff) -> str:
    """16 pieces -> 4 times prefill 4x256."""
    names = Counter(run.bucket.name for run in cliff.runs if run.bucket)
    return ", ".join(name if count == 1 else f"{count} times {name}" for name, count in names.items())


def _pages(asked: BucketingSpec, chip: Chip, held: Deployment) -> int:
    """Pages of a pool that takes most of what the weights leave."""
    room = fit(held.architecture, chip, dtype=asked.dtype, kv_dtype=asked.kv_dtype)
    pages = int(POOL * (float(chip.memory) - room.weights) / (held.kv_bytes_per_token * asked.page))
    if pages < 1:
        raise UserError(f"{room.verdict}, which leaves nothing for a KV pool; take another chip or model, or give --pages")
    return pages


def _policy(asked: BucketingSpec, context: int, chip: Chip, held: Deployment) -> Policy:
    limits = Limits(rows=asked.rows, context=context)
    offered: dict[str, Any] = {"budget": asked.budget, "token_bytes": round(held.kv_bytes_per_token)}
    if takes(asked.policy, "link"):
        if chip.link_bandwidth is None:
            raise UserError(f"chip {chip.name} has no links that KV could be handed over; take another chip or policy")
        offered["link"] = float(chip.link_bandwidth) / 1e9
    return make_policy(asked.policy, limits, {}, offered)
