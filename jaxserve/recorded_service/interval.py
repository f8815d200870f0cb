"""How far a simulated time may be off: where a recorded one lies in 90 % of cases, of one request and of a mean or percentile of many.

Two things are unsure. *What steps take*: the simulation is run again with parameters at the ends of their own interval, along each
direction in which they err independently, for a queue makes more of an error than the step itself. *What a simulation leaves out*: the
errors that it makes on requests that it was fitted to, as quantiles (conformal prediction, Lei et al. 2018). Half-widths of independent
sources add up as squares. A mean or percentile gets the residual part of one request, as if all requests erred the same way: requests of
one queue do, so no square root of their number is taken.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.9
WIDE = statistics.NormalDist().inv_cdf((1 + LEVEL) / 2)  # sd from the middle to an end


class Strayed(NamedTuple):
    """Quantiles of log(recorded / simulated) of one metric on requests that were fitted: the ends of `LEVEL`, and the middle."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, recorded: np.ndarray, simulated: np.ndarray) -> Strayed:
        """Of times [requests] in s; those that are unknown (nan) or 0 say nothing. The order statistics are those of split conformal
        prediction: of n errors the ceil((n + 1) q)-th, so that a few errors make a wide interval; the last where there is none."""
        known = (recorded > 0) & (simulated > 0)
        logs = np.sort(np.log(recorded[known] / simulated[known]))
        if not len(logs):
            return cls(0.0, 0.0, 0.0)
        rank = min(int(np.ceil((len(logs) + 1) * (1 + LEVEL) / 2)), len(logs))
        return cls(float(logs[len(logs) - rank]), float(np.median(logs)), float(logs[rank - 1]))


KNOWN = Strayed(0.0, 0.0, 0.0)  # where nothing is left out, or the ends of steps hold it already


def ends(
    simulated: np.ndarray, pairs: Sequence[tuple[np.ndarray, np.ndarray]], strayed: Strayed
) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) in s, one for each simulated time, or mean, or percentile; nan where that is.

    Args:
      simulated: [n] s.
      pairs: of each independent direction, the same with steps at its two ends.
      strayed: what the simulation leaves out.
    """
    down, up = np.zeros(len(simulated)), np.zeros(len(simulated))
    with np.errstate(divide="ignore", invalid="ignore"):
        for pair in pairs:
            logs = np.stack([np.zeros(len(simulated)), *(np.log(end / simulated) for end in pair)])
            down += logs.min(0) ** 2
            up += logs.max(0) ** 2
    below = np.sqrt(down + (strayed.middle - strayed.low) ** 2)
    above = np.sqrt(up + (strayed.high - strayed.middle) ** 2)
    return simulated * np.exp(strayed.middle - below), simulated * np.exp(strayed.middle + above)
