"""Steps that stray from what is predicted for them, as single steps of the machine did when its calibration was made.

A fit of logarithms says what a step takes in the median. The mean is larger, for slow steps are slower by more than quick ones are
quicker, and a queue near saturation lives on the mean; a P95 of gaps between tokens is made of the slow steps themselves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from jaxserve.scheduling.plan import Plan
from models.errors import UserError


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
