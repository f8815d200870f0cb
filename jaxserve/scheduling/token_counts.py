"""Tokens of a step by what they are run for."""

from __future__ import annotations

from typing import NamedTuple

from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State


class TokenCounts(NamedTuple):
    """How many tokens a step runs of each kind; over all its `steps`, if it has several and no row ends early."""

    prefill: int = 0  # of prompts, and of answers that run again after a preemption
    decode: int = 0  # one for each row that goes on
    draft: int = 0  # to be verified

    @classmethod
    def of(cls, plan: Plan, after: State) -> TokenCounts:
        """Args:
        plan: any.
        after: the state that the policy gave with it, or any later one that knows all of its rows.
        """
        rows = after.workers[plan.worker].rows
        prefill = decode = draft = 0
        for id, start, count in zip(plan.ids, plan.starts, plan.counts, strict=True):
            if start < rows[id].goal:
                prefill += count
            else:
                decode += 1
                draft += count - 1
        return cls(prefill, decode * plan.steps, draft)
