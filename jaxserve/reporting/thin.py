"""Long series made short enough for a page, each in a way that keeps what matters in it, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

POINTS = 800  # of a curve: more than a screen shows
BINS = 100  # of a run's time


class Curve(NamedTuple):
    """Points of a curve, and how many there were.

    Attributes:
      x, y: f64 [points].
      whole: points before any were left out.
    """

    x: np.ndarray
    y: np.ndarray
    whole: int

    @property
    def thinned(self) -> bool:
        return len(self.x) < self.whole


def distribution(values: Sequence[float], most: int = POINTS) -> Curve:
    """The empirical distribution function: at each x the share of values that are at most x.

    Of more than `most` values those of evenly spaced ranks are kept, the least and the largest among them, each with its exact share; so
    what lies between is off by less than 1 / (most - 1) of the values.

    Args:
      values: finite, at least one.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    count = len(ordered)
    kept = np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))
    return Curve(ordered[kept], (kept + 1) / count, count)


def extremes(x: Sequence[float], y: Sequence[float], most: int = POINTS) -> Curve:
    """A curve over ascending x: of more than `most` points, the first and last, and the least and the largest of each of equal runs."""
    at, values = np.asarray(x, np.float64), np.asarray(y, np.float64)
    count = len(at)
    if count <= most:
        return Curve(at, values, count)
    kept = {0, count - 1}
    for part in np.array_split(np.arange(count), max((most - 2) // 2, 1)):
        kept |= {int(part[values[part].argmin()]), int(part[values[part].argmax()])}
    chosen = np.array(sorted(kept))
    return Curve(at[chosen], values[chosen], count)


class Bins(NamedTuple):
    """A run's time in equal parts, with means over the steps that ended in each.

    Attributes:
      start: s, f64 [bins]; bins without a step are left out.
      seconds: of each bin.
      steps: that ended in it, i64 [bins].
      means: f64 [columns, bins].
    """

    start: np.ndarray
    seconds: float
    steps: np.ndarray
    means: np.ndarray


def binned(times: Sequence[float], columns: Sequence[Sequence[float]], bins: int = BINS) -> Bins:
    """Means of columns over equal parts of the time from 0 to the last step's end.

    Args:
      times: s at which each step ended, above 0, at least one.
      columns: [columns][steps].
    """
    at = np.asarray(times, np.float64)
    count = min(bins, len(at))
    width = float(at.max()) / count
    where = np.clip(np.ceil(at / width).astype(int) - 1, 0, count - 1)  # who ends as a part does is of that part
    steps = np.bincount(where, minlength=count)
    sums = np.array([np.bincount(where, np.asarray(column, np.float64), count) for column in columns])
    there = steps > 0
    return Bins(np.arange(count)[there] * width, width, steps[there], sums[:, there] / steps[there])


def spread(count: int, most: int = POINTS) -> np.ndarray:
    """Indices of at most so many of `count` things, evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)) if count else np.arange(0)
