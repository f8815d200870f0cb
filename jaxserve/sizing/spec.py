"""What a sizing study is asked, checked as far as that goes before anything is worked out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from costmodel.capacity import Fit, Pool
from costmodel.cli.choices import ModelChoice, choose_chip, choose_model
from costmodel.hardware.chip import Chip
from costmodel.sizing import Goal, Placement
from jaxserve.deployment.kv_pool import memory_besides_kv, pool_of
from jaxserve.deployment.step_times import check_sources
from jaxserve.load.slo import SLO
from jaxserve.load.spec import check_kept
from jaxserve.sizing.traffic import Traffic, from_trace, poisson, split
from jaxserve.sizing.trial import Configuration
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class SizingSpec:
    """The options of the command; see its --help. Sizes are B, times s, rates requests a second.

    Attributes:
      chip, policy: one for a study, several for a search.
      tensor_parallel, batch: degrees and caps; None for what suits.
      kv_pool: of all chips together, no head counted twice; None for what weights and workspace leave.
      context: tokens of a full sequence; None for the longest of a trace.
      prompt, answer: how the context divides; None for three quarters and one.
      headroom: the share of the pages that is kept free; reserve: of a chip's memory.
      requests: to simulate in each run.
      step_times: analytical or calibrated, see `jaxserve.deployment.step_times`; silicon: kernels that calibrated ones are made of, or
        machine: the file of an engine's steps.
    """

    model: str
    chip: tuple[str, ...]
    policy: tuple[str, ...]
    tensor_parallel: tuple[int, ...] | None
    batch: tuple[int, ...] | None
    kv_pool: int | None
    context: int | None
    prompt: int | None
    answer: int | None
    rate: float | None
    trace: Path | None
    time_scale: float
    length_scale: float
    ttft_p95: float | None
    itl_p95: float | None
    budget: int
    page: int
    headroom: float
    reserve: float
    dtype: str
    kv_dtype: str | None
    requests: int
    seed: int
    step_times: str
    silicon: str | None
    machine: Path | None = None

    def __post_init__(self) -> None:
        if self.ttft_p95 is None and self.itl_p95 is None:
            raise UserError("no SLO was given to size for; add --ttft-p95 250ms, --itl-p95 12ms or both")
        if (self.trace is None) == (self.rate is None):
            raise UserError(
                "give either --rate 20/s, for Poisson arrivals, or --trace FILE, which has its own (see --time-scale)"
            )
        if self.trace is None and self.context is None:
            raise UserError("--rate needs the length of its requests; add --context 1024")
        if self.trace is not None and (self.prompt is not None or self.answer is not None):
            raise UserError("--prompt and --answer say how long drawn requests are, and a trace says so itself; leave them out")

        check_sources(self.step_times, self.silicon, self.machine)

    @property
    def slo(self) -> SLO:
        ttft, itl = ({} if limit is None else {95.0: limit} for limit in (self.ttft_p95, self.itl_p95))
        return SLO(ttft=ttft, itl=itl)

    @property
    def goal(self) -> Goal:
        return Goal(self.ttft_p95, self.itl_p95)

    def choose(self) -> ModelChoice:
        """The model. Raises UserError for one that nobody knows, or a context beyond it."""
        chosen = choose_model(self.model)
        most = chosen.architecture.max_positions
        if self.context is not None and not 1 <= self.context <= most:
            raise UserError(f"--context is {self.context}; {chosen.name} takes 1 to {most} tokens")
        return chosen

    def traffic(self, chosen: ModelChoice) -> Traffic:
        """The requests. Raises UserError as `poisson`, `split` and `from_trace`."""
        if self.trace is not None:
            most, of = (self.context, "--context") if self.context else (chosen.architecture.max_positions, chosen.name)
            return from_trace(self.trace, self.requests, most, of, time=self.time_scale, length=self.length_scale)
        assert self.rate is not None and self.context is not None
        prompt, answer = split(self.context, self.prompt, self.answer)
        check_kept(self.requests, self.requests * answer)
        return poisson(self.rate, prompt, answer, self.requests, self.seed)

    def chips(self) -> tuple[Chip, ...]:
        """Each once, in the order given. Raises UserError for one that nobody knows."""
        found = [choose_chip(name).chip for name in self.chip]
        return tuple({chip.name: chip for chip in found}.values())

    def placement(self, chosen: ModelChoice, chip: Chip, degree: int) -> Placement:
        """Raises UserError for a degree that does not divide the model."""
        chosen.architecture.check_degree(degree)
        return Placement(chosen.architecture, chip, degree, self.dtype, self.kv_dtype)

    def fit(self, placement: Placement, rows: int) -> Fit:
        """What is beside the KV pool, and whether that fits with it: a step of `rows` sequences that runs a budget's worth of tokens."""
        return memory_besides_kv(placement, self.kv_pool, rows, max(self.budget, rows), self.reserve)

    def pool(self, placement: Placement, found: Fit) -> Pool:
        """The pool that was asked for, or all that is left. Raises UserError where nothing is."""
        return pool_of(placement, found, self.kv_pool, self.page, self.headroom)

    def configuration(self, cap: int, pool: Pool, piece: int = 1) -> Configuration:
        """The first policy with this cap, over the pages that sequences may fill. piece: of `Configuration`."""
        return Configuration(self.policy[0], cap, self.budget, pool.usable, self.page, piece)
