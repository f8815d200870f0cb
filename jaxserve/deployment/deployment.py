"""What a simulated load runs on: a policy over the KV pages of chips, and what its steps take."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from costmodel.capacity import ENTRY, Fit, Pool
from costmodel.cli.choices import ModelChoice, choose_chip, choose_model
from costmodel.sizing import Placement
from jaxserve.calibration.machine import Machine
from jaxserve.deployment.kv_pool import memory_besides_kv, pool_of
from jaxserve.deployment.lengths import Lengths
from jaxserve.deployment.step_times import StepTimes, check_sources, compiled_steps, decode_plan, machine_steps, step_times
from jaxserve.engine.config import EngineConfig
from jaxserve.kv.paged import Paged
from jaxserve.load.measure import Bar, check_clients
from jaxserve.load.result import Pool as Known
from jaxserve.load.spec import LoadSpec as LoadAsked
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.state import State
from jaxserve.simulator.faults import Fault, Faults
from models.errors import UserError

BUDGET = 512  # tokens of a step where nothing is said


@dataclasses.dataclass(frozen=True)
class DeploymentSpec:
    """The options of the command that are about the deployment; see its --help. Sizes are B.

    Attributes:
      policy: who runs, with all that belongs to it.
      pages: of each worker's pool, in place of `kv_pool` B on its chips.
      prefix_cache: None: where prompts of the load share beginnings.
      ahead: plans that are made before the outcome of earlier ones is known.
    """

    model: str
    chip: str
    tensor_parallel: int
    dtype: str
    kv_dtype: str | None
    policy: EngineConfig
    kv_pool: int | None
    pages: int | None
    page: int
    headroom: float
    reserve: float
    prefix_cache: bool | None
    ahead: int
    step_times: str
    silicon: str | None
    machine: Path | None

    def __post_init__(self) -> None:
        check_sources(self.step_times, self.silicon, self.machine)
        if self.kv_pool is not None and self.pages is not None:
            raise UserError("--pages and --kv-pool both say how large the pool is; leave one of them out")
        if self.ahead and self.policy.policy == "disaggregated":
            raise UserError("--ahead 1 is of a worker alone, and disaggregated ones run one plan each; leave it out")

    @property
    def rows(self) -> int:
        """Sequences at once, on each worker."""
        return self.policy.most_rows

    @property
    def cuts(self) -> bool:
        """Prompts are run in pieces, within a budget."""
        return self.policy.mixes or self.policy.policy == "disaggregated"

    @property
    def budget(self) -> int:
        """Tokens of a step at most, of policies that have a budget; each sequence must be able to go on."""
        return self.policy.budget or max(BUDGET, self.rows)


@dataclasses.dataclass(frozen=True)
class Deployment:
    """Every choice is made.

    Attributes:
      fit: what weights, workspace and pool take of a chip.
      pool: of each worker, with block metadata and headroom.
      requests: that will come, those of bursts included.
      longest: tokens of the longest sequence.
      prefix: there is a prefix cache.
      steps: what they take.
    """

    asked: DeploymentSpec
    chosen: ModelChoice
    placement: Placement
    fit: Fit
    pool: Pool
    requests: int
    longest: int
    prefix: bool
    steps: StepTimes

    def make(self) -> tuple[Policy, State]:
        """The policy, and workers without work. Raises UserError for values that don't fit each other."""
        asked = self.asked
        piece, token = self.steps.piece, int(self.pool.token)
        policy: Any = asked.policy.scheduling(asked.rows, token_bytes=token, budget=asked.budget, piece=piece)
        policy = dataclasses.replace(policy, limits=dataclasses.replace(policy.limits, ahead=asked.ahead))
        memory = Paged.of(self.pool.usable, asked.page, prefix=self.prefix)
        return policy, State.of(*[memory] * asked.policy.workers)

    @property
    def memory(self) -> Known:
        """The pages that sequences may fill, of all workers."""
        return Known(self.pool.usable * self.asked.policy.workers, self.asked.page)


def deploy(asked: DeploymentSpec, load: LoadAsked, faults: tuple[Fault, ...], bar: Bar) -> Deployment:
    """Make every choice that the options leave open.

    Args:
      load: what it is to bear; faults: whose bursts it is to bear as well.

    Raises:
      UserError: no such model or chip; what does not fit on it, or no pool could hold; an SLO below one step.
    """
    chosen = choose_model(asked.model)
    chosen.architecture.check_degree(asked.tensor_parallel)
    placement = Placement(chosen.architecture, choose_chip(asked.chip).chip, asked.tensor_parallel, asked.dtype, asked.kv_dtype)
    Faults.of(faults, asked.policy.workers)  # what is wrong with them is said before anything is worked out
    count, longest, shortest = Lengths.of(load, faults, chosen)
    pool, found = _pool(asked, placement)
    _check_pool(asked, pool, longest)
    prefix = load.source.shares if asked.prefix_cache is None else asked.prefix_cache
    steps = _steps(asked, placement, chosen, longest, bar)
    made = Deployment(asked, chosen, placement, found, pool, count, longest, prefix, steps)
    made.make()  # what is wrong with the policy is said now
    for each in load.loads if load.clients else ():
        check_clients(each, load, made.memory, prefix=prefix and load.source.shares)
    if load.slo is not None and asked.policy.multi_step == 1:
        load.slo.check_step(made.steps.seconds(decode_plan(1, shortest + 1)), made.steps.witness)
    return made


def _pool(asked: DeploymentSpec, placement: Placement) -> tuple[Pool, Fit]:
    """The pool, and what is beside it. Raises UserError where that does not fit the chips."""
    size: float | None = asked.kv_pool
    if asked.pages is not None:
        size = asked.pages * (placement.pool(1.0, asked.page).token * asked.page + ENTRY)
    tokens = asked.budget if asked.cuts else asked.rows
    found = memory_besides_kv(placement, size, asked.rows, tokens, asked.reserve)
    if not found.fits:
        raise UserError(f"{found.verdict}; give a smaller --kv-pool, more --tensor-parallel or another --chip")
    return pool_of(placement, found, size, asked.page, 0.0 if asked.pages else asked.headroom), found


def _check_pool(asked: DeploymentSpec, pool: Pool, longest: int) -> None:
    if (needed := pool.pages_of(longest)) > pool.usable:
        raise UserError(
            f"the longest request has {longest} tokens in {needed} pages, and the pool has {pool.usable} of {pool.page} tokens each: it "
            "would never run; give a larger --kv-pool, or shorter requests"
        )


def _steps(asked: DeploymentSpec, placement: Placement, chosen: ModelChoice, longest: int, bar: Bar) -> StepTimes:
    if asked.machine is not None:
        machine = Machine.read(asked.machine)
        return machine_steps(placement, asked.machine, machine, page=asked.page, caps=(asked.rows,), context=longest)
    if asked.step_times == "compiled":
        piece = asked.budget if asked.cuts else longest
        return compiled_steps(placement, chosen, asked.chip, rows=asked.rows, piece=piece, longest=longest, bar=bar)
    return step_times(placement, asked.step_times, asked.silicon)
