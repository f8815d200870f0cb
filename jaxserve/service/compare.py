"""A service and what a simulation makes of it, side by side: mean and percentiles of TTFT, TPOT and E2E, and the errors in %."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxserve.load.percentile import percentile
from jaxserve.service.recorded import Served

METRICS = ("TTFT", "TPOT", "E2E")
STATISTICS = ("mean", "P50", "P90", "P99")
_PEER = {"TTFT": "TTFT", "TPOT": "TPOT", "E2E": "Latency", "mean": "Mean", "P50": "Median", "P90": "P90", "P99": "P99"}


class Error(NamedTuple):
    """One figure, twice.

    Attributes:
      recorded, simulated: s.
    """

    metric: str
    statistic: str
    recorded: float
    simulated: float

    @property
    def relative(self) -> float:
        """simulated / recorded - 1; nan where the recorded one is 0 or unknown."""
        return self.simulated / self.recorded - 1 if self.recorded else math.nan


def compare(recorded: Sequence[Served], simulated: Sequence[Served]) -> list[Error]:
    """All figures of the same requests, in the same order."""
    found = []
    for metric in METRICS:
        theirs, ours = (values(requests, metric) for requests in (recorded, simulated))
        found += [Error(metric, each, statistic(theirs, each), statistic(ours, each)) for each in STATISTICS]
    return found


def values(requests: Sequence[Served], metric: str) -> np.ndarray:
    """s of one metric, of the requests that have it: TPOT is undefined for an answer of one token."""
    found = np.array([getattr(request, metric.lower()) for request in requests])
    return found[~np.isnan(found)]


def statistic(of: np.ndarray, name: str) -> float:
    """The mean, or a percentile by `jaxserve.load.percentile.RULE`; nan of nothing."""
    if not len(of):
        return math.nan
    return float(of.mean()) if name == "mean" else percentile(of, float(name[1:]))


def peer_error(peer: Mapping[tuple[str, str], float], error: Error) -> float | None:
    """By how much another simulator is off in the same figure, as a share; None where it did not say."""
    return peer.get((_PEER[error.metric], _PEER[error.statistic]))


def to_json(errors: Sequence[Error]) -> list[dict[str, Any]]:
    """Plain data, s and shares."""
    return [{**error._asdict(), "error": error.relative} for error in errors]
