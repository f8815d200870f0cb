"""Chunked prefill: every step runs at most a budget of tokens, so that no prompt, however long, holds up those that decode."""

from __future__ import annotations

import dataclasses

from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.plan_builder import PlanBuilder
from jaxserve.scheduling.state import State
from jaxserve.values import integer, settle
from models.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class Chunked:
    """Decodes first, then prompts that have begun, then new ones, until the budget is used (Agrawal et al. 2024, Sarathi-Serve,
    algorithm 3). One step holds both kinds, so that the weights are read once for both.

    Attributes:
      budget: tokens of a step at most. At least as many as rows, so that every row can go on.
      multi_step: tokens that may be drawn in one plan while nobody waits.
      piece: tokens that the programs fill a prompt's part up to. What is filled up counts in the budget, and only the end of a prompt
        is no whole piece, so that a step takes no larger program than its budget says.
    """

    limits: Limits = dataclasses.field(default_factory=Limits)
    budget: int = 512
    multi_step: int = 1
    piece: int = 1

    def __post_init__(self) -> None:
        settle(
            self,
            multi_step=Limits.check(self.limits, self.multi_step),
            budget=integer("the budget, tokens of a step,", self.budget, 1),
            piece=integer("piece, tokens,", self.piece, 1),
        )
        if self.budget < self.limits.rows:
            raise UserError(
                f"a budget of {self.budget} tokens a step is too small for {self.limits.rows} rows; raise it or lower the limit of rows"
            )

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        step = PlanBuilder(self.limits, state, now)
        left = self.budget - step.decode(spare=self.budget - len(step.rows))
        step.fill(left, self.piece if self.piece <= left else 1)  # a part of a piece is better than no progress
        step.repeat(self.multi_step)
        return step.done()
