"""How long things take on the virtual clock: the steps, and the host between them."""

from __future__ import annotations

import math
from collections.abc import Callable

from jaxserve.scheduling.plan import Plan
from models.errors import UserError


class Pace:
    """Steps as long as a predictor says, begun as soon as something is known, or a fixed time after it.

    Args:
      seconds: of a plan that has rows.
      gap: s from what happens (an arrival, an outcome) to the plan that answers it, in which the host does its part. What arrives
        meanwhile is in the plan too.

    Raises:
      UserError: a gap below 0, or for ever.
    """

    def __init__(self, seconds: Callable[[Plan], float], gap: float = 0.0):
        if not 0 <= gap < math.inf:
            raise UserError(f"the host's gap is {gap} s; it must be at least 0, and not for ever")
        self._seconds, self._gap = seconds, gap

    def ready(self, now: float, step: int) -> float:
        """When the host comes to plan step number `step`, given that something happened at `now`."""
        return now + self._gap

    def again(self, now: float, step: int) -> float:
        """When it comes to the next plan, number `step`, after it has just made one at `now`."""
        return now

    def end(self, plan: Plan, begin: float) -> float:
        """When a plan is over that its worker begins at `begin`.

        Raises:
          RuntimeError: the predictor says that it takes no time, or for ever.
        """
        took = self._seconds(plan)
        if not 0 < took < math.inf:
            raise RuntimeError(f"plan {plan.step} is said to take {took} s; a step takes some time, and not for ever")
        return begin + took
