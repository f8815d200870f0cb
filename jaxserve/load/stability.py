"""Whether work piles up: a slope test on latencies over the time of arrival.

Above saturation the queue grows as long as the load lasts, so that latency is no property of the load but of how long it was watched.
Latencies of neighbours depend on each other, so the line is fitted to the means of consecutive batches (batch means: Law 2015, section
9.5.3), which are nearly independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr  # type: ignore[import-untyped]

BATCHES = 10
LEAST = 3 * BATCHES  # values: batches of three
LEVEL = 0.01  # of the one-sided test: a steady server is called unsteady so rarely
SETTLES = 0.2  # of the arrivals, the first, are left out: an empty server fills up, and that is no trend
MATTERS = 0.5  # a rise over the run of less than so much of the mean is no matter, however sure


class Growth(NamedTuple):
    """Attributes:
    slope: s of latency a second of arrivals; nan where there are too few values.
    p: of the one-sided test against a slope of at most 0; nan likewise.
    rise: slope times the time that was looked at, over the mean latency.
    grows: the slope is above 0 beyond chance and large enough to matter.
    """

    slope: float
    p: float
    rise: float
    grows: bool

    @property
    def known(self) -> bool:
        return not math.isnan(self.p)


UNKNOWN = Growth(math.nan, math.nan, math.nan, False)


def growth(arrivals: Sequence[float] | np.ndarray, latencies: Sequence[float] | np.ndarray) -> Growth:
    """The slope of latency over arrival time, with a one-sided t-test.

    Args:
      arrivals: s; latencies: s, nan where there was none: those are left out.

    Returns:
      `UNKNOWN` with fewer than `LEAST` values after the first fifth, or where all arrive at once.
    """
    x, y = np.asarray(arrivals, dtype=float), np.asarray(latencies, dtype=float)
    seen = ~np.isnan(y)
    order = np.argsort(x[seen], kind="stable")
    x, y = x[seen][order], y[seen][order]
    x, y = x[int(len(x) * SETTLES) :], y[int(len(y) * SETTLES) :]
    if len(x) < LEAST or x[0] == x[-1]:
        return UNKNOWN
    mx = np.array([each.mean() for each in np.array_split(x, BATCHES)])
    my = np.array([each.mean() for each in np.array_split(y, BATCHES)])
    dx, dy = mx - mx.mean(), my - my.mean()
    spread = float(dx @ dx)
    if not spread:
        return UNKNOWN
    slope = float(dx @ dy) / spread
    left = float(np.sum((dy - slope * dx) ** 2)) / (BATCHES - 2)
    error = math.sqrt(left / spread)
    p = float(stdtr(BATCHES - 2, -slope / error)) if error > 0 else float(slope <= 0)
    mean = float(y.mean())
    rise = slope * float(x[-1] - x[0]) / mean if mean > 0 else 0.0
    return Growth(slope, p, rise, p < LEVEL and rise > MATTERS)
