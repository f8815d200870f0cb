"""Whether intervals cover what they claim, on groups that neither the fit nor its errors have seen."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from costmodel.calibration.form import Values
from costmodel.calibration.kernels import Kernel

SHARE = 0.5  # of groups that are calibrated on; the others are for the check
SIGMAS = 3.0


class Coverage(NamedTuple):
    """What a check found.

    Attributes:
      level: that is claimed.
      covered: share of the points whose measured time lay within.
      points, groups: of the check.
      slack: how far `covered` may be from `level` by chance: 3 sd of a binomial share of so many independent draws as there are groups, for
        the points of one group err alike.
    """

    level: float
    covered: float
    points: int
    groups: int
    slack: float

    @property
    def holds(self) -> bool:
        return abs(self.covered - self.level) <= self.slack

    @property
    def line(self) -> str:
        said = "as claimed" if self.holds else "not as claimed"
        return (
            f"intervals: {self.level:.0%} claimed; {self.covered:.1%} of {self.points:,} points lie within, of {self.groups} groups "
            f"that were never seen: {said}, within {self.slack:.1%}, 3 sd of a binomial share of {self.groups}"
        )


def coverage(kernel: Kernel, level: float, *, by: str = "shape", seed: int = 1, start: Values | None = None) -> Coverage:
    """Calibrate on half of the groups and look at the other half.

    Args:
      start: where fits begin, to be quick.
    """
    labels, numbers = np.unique(kernel.groups[by], return_inverse=True, axis=0)
    order = np.random.default_rng(seed).permutation(len(labels))
    seen = (order < SHARE * len(labels))[numbers.ravel()]
    calibration = kernel.calibrate(used=seen, start=start)
    low, high = calibration.interval(calibration.seconds(kernel.features), level)
    within = (kernel.seconds >= low) & (kernel.seconds <= high)
    groups = len(np.unique(numbers.ravel()[~seen]))
    covered, points = float(within[~seen].mean()), int((~seen).sum())
    return Coverage(level, covered, points, groups, SIGMAS * math.sqrt(level * (1 - level) / groups))
