"""How long things take on the virtual clock: the steps, and the host between them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

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


# Steps that stray from what is predicted for them, as single steps of the machine did when its calibration was made.
#
# A fit of logarithms says what a step takes in the median. The mean is larger, for slow steps are slower by more than quick
# ones are quicker, and a queue near saturation lives on the mean; a P95 of gaps between tokens is made of the slow steps
# themselves.


class Noisy:
    """A predictor whose every step is multiplied with a draw of its own.

    A draw depends on the seed and on the plan's serial number and nothing else, so a simulation gives the same times again. Draws of
    different steps are independent; a machine that is slow for a while is not described.

    Args:
      seconds: what a plan takes in the median, s.
      errors: quantiles of log(measured / predicted) of single steps, evenly spaced from the least to the largest, as a
        `Calibration` keeps them.
      seed: of the draws.

    Raises:
      UserError: no errors.
    """

    def __init__(self, seconds: Callable[[Plan], float], errors: Sequence[float], seed: int = 0):
        if not errors:
            raise UserError("no errors of steps are known, so none can be drawn; give those of a calibration")
        self._seconds, self._errors, self._seed = seconds, tuple(errors), seed

    def __call__(self, plan: Plan) -> float:
        """s of a plan."""
        return self._seconds(plan) * math.exp(self.error(plan.step))

    def error(self, step: int) -> float:
        """log(what this step takes / what is predicted)."""
        place = random.Random(f"{self._seed} {step}").random() * (len(self._errors) - 1)
        low = math.floor(place)
        high = min(low + 1, len(self._errors) - 1)
        return self._errors[low] + (place - low) * (self._errors[high] - self._errors[low])
