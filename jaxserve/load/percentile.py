"""Percentiles by one named rule, with an interval that supposes nothing of the distribution, and a word where the sample is too small."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr  # type: ignore[import-untyped]

from costmodel.hardware.clock import nearest_rank

RULE = "nearest rank (Hyndman and Fan 1996, type 1): the smallest value that at least q % of all values do not exceed"
LEVEL = 0.95
FEW = (
    f"a percentile is flagged where fewer values were seen than an interval from order statistics at {LEVEL:.0%} needs: 6 for P50, 36 "
    "for P90, 72 for P95, 368 for P99"
)


def percentile(values: Sequence[float] | np.ndarray, q: float) -> float:
    """The q-th percentile by `RULE`: always a value that happened. nan where there are none.

    Args:
      q: above 0, at most 100.

    Raises:
      UserError: another q.
    """
    rank = nearest_rank(q, len(values))
    return float(np.sort(np.asarray(values, dtype=float))[rank - 1]) if rank else math.nan


def interval(values: Sequence[float] | np.ndarray, q: float, level: float = LEVEL) -> tuple[float, float] | None:
    """An interval that holds the true percentile with at least this probability, whatever the distribution.

    The number of values that do not exceed the true percentile is binomial, so two order statistics bound it (Hahn and Meeker 1991,
    section 5.2), each tail with (1 - level) / 2 at most. Values are taken as independent; where they are not, as of a queue, it is
    too narrow.

    Returns:
      (low, high); None where no order statistic is far enough out, so that the sample says nothing of the percentile's bound.
    """
    nearest_rank(q, len(values))  # says what is wrong with q
    ranks = _ranks(len(values), q, level)
    if ranks is None:
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    return float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1])


def enough(n: int, q: float) -> bool:
    """Whether n values bound the percentile from both sides; see `interval`."""
    return _ranks(n, q, LEVEL) is not None


def _ranks(n: int, q: float, level: float) -> tuple[int, int] | None:
    """Ranks, from 1, of the two order statistics; with B ~ binomial(n, q): P(B < low) and P(B >= high) are each small enough."""
    p, tail = q / 100, (1 - level) / 2
    if not n or p == 1:
        return None
    reach = 10 * math.sqrt(n * p * (1 - p)) + 10
    counts = np.arange(max(math.floor(n * p - reach), 0), min(math.ceil(n * p + reach), n) + 1)
    below = bdtr(counts, n, p)  # P(B <= k)
    # low: the largest k with P(B <= k - 1) <= tail. high: the smallest k with P(B <= k - 1) >= 1 - tail.
    low = int(counts[0]) + int(np.count_nonzero(below <= tail))
    high = int(counts[0]) + int(np.count_nonzero(below < 1 - tail)) + 1
    return (low, high) if low >= 1 and high <= n else None
