"""How full batches were: slots and bytes, two figures that must not be mistaken for one another.

A slot that a finished row keeps locked costs no bandwidth: weights are read once a step whatever the rows, and a row that does not
run reads no KV. What it costs is that nobody else can have it.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.step_result import StepResult


class Occupancy(NamedTuple):
    """Sums over the plans of a run."""

    steps: int = 0  # each reads the weights once
    slots: int = 0  # places, over all steps
    useful: int = 0  # of them, those whose row ran
    context: int = 0  # tokens whose KV was attended over, by all rows and steps

    def after(self, plan: Plan, outcome: StepResult) -> Occupancy:
        """With one more plan, once its outcome is known."""
        # Over several steps a row runs one token each, until it ends.
        runs = [len(tokens) for tokens in outcome.tokens] if plan.steps > 1 else [1] * len(plan.ids)
        steps = max(runs, default=0)
        context = sum(
            n * (start + count) + n * (n - 1) // 2 for start, count, n in zip(plan.starts, plan.counts, runs, strict=True)
        )
        return Occupancy(self.steps + steps, self.slots + plan.slots * steps, self.useful + sum(runs), self.context + context)

    @property
    def padded(self) -> int:
        """Places whose row had ended."""
        return self.slots - self.useful

    @property
    def padded_share(self) -> float:
        """Of all places; 0 where there were none."""
        return self.padded / self.slots if self.slots else 0.0

    def bytes(self, weights: int, token: int) -> int:
        """Bytes read, nominal: `weights` B once a step, and `token` B of KV for every token that a row attended over."""
        return self.steps * weights + self.context * token
