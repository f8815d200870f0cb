"""A service and what a simulation makes of it, side by side: mean and percentiles of TTFT, TPOT and E2E, intervals, and errors in %."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxserve.load.percentile import percentile
from jaxserve.recorded_service.recorded import Served

METRICS = ("TTFT", "TPOT", "E2E")
STATISTICS = ("mean", "P50", "P90", "P99")
_PEER = {"TTFT": "TTFT", "TPOT": "TPOT", "E2E": "Latency", "mean": "Mean", "P50": "Median", "P90": "P90", "P99": "P99"}

Pairs = Sequence[tuple[Sequence[Served], Sequence[Served]]]


class Error(NamedTuple):
    """One figure, twice.

    Attributes:
      recorded, simulated: s.
      low, high: s, the ends of the simulated one's interval; nan where there is none.
    """

    metric: str
    statistic: str
    recorded: float
    simulated: float
    low: float = math.nan
    high: float = math.nan

    @property
    def relative(self) -> float:
        """simulated / recorded - 1; nan where the recorded one is 0 or unknown."""
        return self.simulated / self.recorded - 1 if self.recorded else math.nan

    @property
    def within(self) -> bool:
        """Whether the recorded figure lies in the interval."""
        return self.low <= self.recorded <= self.high


class Covered(NamedTuple):
    """Of one metric: requests that have it, and those of them whose recorded time lies in the interval of their own."""

    metric: str
    requests: int
    within: int


class Compared(NamedTuple):
    """All figures of the same requests.

    Attributes:
      covered: by metric; none where there are no intervals.
    """

    errors: Sequence[Error]
    covered: Sequence[Covered]


def compare(
    recorded: Sequence[Served],
    simulated: Sequence[Served],
    pairs: Pairs = (),
    strayed: Mapping[str, Strayed] | None = None,
) -> Compared:
    """All figures, of requests in the same order.

    Args:
      pairs: the simulation with steps at the two ends of what they may take, for each direction in which they err independently.
      strayed: by metric, what simulated requests were off by before; None, and no pairs: no intervals.
    """
    found, covered = [], []
    for metric in METRICS:
        theirs, ours = times(recorded, metric), times(simulated, metric)
        figures = _figures(ours)
        lows, highs = np.full(len(figures), math.nan), np.full(len(figures), math.nan)
        if pairs or strayed is not None:
            left = strayed[metric] if strayed is not None else KNOWN
            both = [(times(a, metric), times(b, metric)) for a, b in pairs]
            lows, highs = ends(figures, [(_figures(a), _figures(b)) for a, b in both], left)
            least, most = ends(ours, both, left)
            have = ~np.isnan(theirs)
            covered.append(Covered(metric, int(have.sum()), int(((least <= theirs) & (theirs <= most))[have].sum())))
        rows = zip(STATISTICS, _figures(theirs).tolist(), figures.tolist(), lows.tolist(), highs.tolist(), strict=True)
        found += [Error(metric, *row) for row in rows]
    return Compared(found, covered)


def strays(recorded: Sequence[Served], simulated: Sequence[Served]) -> dict[str, Strayed]:
    """By metric, how far off requests were that were fitted."""
    return {metric: Strayed.of(times(recorded, metric), times(simulated, metric)) for metric in METRICS}


def times(requests: Sequence[Served], metric: str) -> np.ndarray:
    """s of one metric [requests]; nan where it is undefined: TPOT of an answer of one token."""
    return np.array([getattr(request, metric.lower()) for request in requests], float)


def values(requests: Sequence[Served], metric: str) -> np.ndarray:
    """s of one metric, of the requests that have it."""
    found = times(requests, metric)
    return found[~np.isnan(found)]


def statistic(of: np.ndarray, name: str) -> float:
    """The mean, or a percentile by `jaxserve.load.percentile.RULE`; nan of nothing."""
    if not len(of):
        return math.nan
    return float(of.mean()) if name == "mean" else percentile(of, float(name[1:]))


def peer_error(peer: Mapping[tuple[str, str], float], error: Error) -> float | None:
    """By how much another simulator is off in the same figure, as a share; None where it did not say."""
    return peer.get((_PEER[error.metric], _PEER[error.statistic]))


def to_json(compared: Compared) -> dict[str, Any]:
    """Plain data, s and shares; no interval is null."""
    figures = []
    for error in compared.errors:
        known = not math.isnan(error.low)
        figure = {**error._asdict(), "error": error.relative, "within": error.within if known else None}
        figures.append(figure if known else {**figure, "low": None, "high": None})
    return {"figures": figures, "covered": [each._asdict() for each in compared.covered]}


def _figures(of: np.ndarray) -> np.ndarray:
    known = of[~np.isnan(of)]
    return np.array([statistic(known, each) for each in STATISTICS])


# How far a simulated time may be off: where a recorded one lies in 90 % of cases, of one request and of a mean or percentile
# of many.
#
# Two things are unsure. *What steps take*: the simulation is run again with parameters at the ends of their own interval,
# along each direction in which they err independently, for a queue makes more of an error than the step itself. *What a
# simulation leaves out*: the errors that it makes on requests that it was fitted to, as quantiles (conformal prediction, Lei
# et al. 2018). Half-widths of independent sources add up as squares. A mean or percentile gets the residual part of one
# request, as if all requests erred the same way: requests of one queue do, so no square root of their number is taken.

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
