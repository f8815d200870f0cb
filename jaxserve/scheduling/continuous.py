"""Iteration-level scheduling: after every step those that ended leave and those that wait come in, each with its whole prompt."""

from __future__ import annotations

import dataclasses
import math
import sys

from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.plan_builder import PlanBuilder
from jaxserve.scheduling.state import State
from jaxserve.values import settle


@dataclasses.dataclass(frozen=True, slots=True)
class Continuous:
    """First come, first served (Yu et al. 2022, Orca, section 3.1). A request that ends at step 20 frees its place for step 21.

    Attributes:
      limits: `prefill_tokens` bounds how much the prompts of one step can delay those that decode.
      multi_step: tokens that may be drawn in one plan while nobody waits.
    """

    limits: Limits = dataclasses.field(default_factory=Limits)
    multi_step: int = 1

    def __post_init__(self) -> None:
        settle(self, multi_step=Limits.check(self.limits, self.multi_step))

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        step = PlanBuilder(self.limits, state, now)
        step.decode(spare=sys.maxsize)
        step.fill(math.inf)
        step.repeat(self.multi_step)
        return step.done()
