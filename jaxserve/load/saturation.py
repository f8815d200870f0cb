"""The highest rate of arrivals at which an SLO holds, and the admission limit that follows.

Works on anything that takes a rate and gives records: a measurement or a simulation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxserve.load.little import littles_law
from jaxserve.load.quantiles import plain
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.slo import SLO, Verdict
from jaxserve.load.stability import Growth, growth
from models.errors import UserError

Measure = Callable[[float], Sequence[RequestRecord]]


class Probe(NamedTuple):
    """One rate that was tried.

    Attributes:
      rate: requests a second, as asked; nothing else of the run is.
      requests: measured.
      verdicts: of each limit.
      trend: of the time in the queue over arrivals, or of TTFT where nothing is known of a queue.
      residence: mean s from when a request is due to its end.
      most: requests that were open at once, at most.
      holds: every limit is met and work doesn't pile up.
    """

    rate: float
    requests: int
    verdicts: tuple[Verdict, ...]
    trend: Growth
    residence: float
    most: int
    holds: bool

    @property
    def why(self) -> str:
        """What is wrong with it; empty where it holds."""
        missed = [f"{each.name} {each.found * 1e3:.4g} ms" for each in self.verdicts if not each.met]
        return ", ".join([*missed, *(["work piles up"] if self.trend.grows else [])])

    def to_json(self) -> dict[str, Any]:
        trend = {"slope": plain(self.trend.slope), "p": plain(self.trend.p), "grows": self.trend.grows}
        return {
            "rate": self.rate,
            "requests": self.requests,
            "holds": self.holds,
            "slo": [verdict.to_json() for verdict in self.verdicts],
            "trend": trend,
            "residence": plain(self.residence),
            "most_open": self.most,
        }


@dataclasses.dataclass(frozen=True)
class Saturation:
    """What was found.

    Attributes:
      rate: the highest rate, requests a second, that was tried and holds; 0 where none does.
      above: the lowest that was tried and doesn't; inf where all do.
      probes: all, in the order in which they were tried.
    """

    rate: float
    above: float
    probes: tuple[Probe, ...]

    @property
    def best(self) -> Probe | None:
        """The one at `rate`."""
        return next((probe for probe in self.probes if probe.rate == self.rate and probe.holds), None)

    @property
    def limit(self) -> int | None:
        """Requests in flight at once that an admission limit should let in: rate times mean stay there (Little); None without a rate."""
        best = self.best
        return max(math.ceil(best.rate * best.residence), 1) if best else None

    @property
    def verdict(self) -> str:
        """In a line."""
        best, limit = self.best, self.limit
        if best is None or limit is None:
            return f"the SLO holds at no rate that was tried, down to {self.above:.4g}/s: {self.probes[-1].why}"
        edge = f"fails at {self.above:.4g}/s" if self.above < math.inf else "holds at every rate that was tried"
        return (
            f"the SLO holds up to {self.rate:.4g}/s and {edge}; admission limit {limit} in flight = {best.rate:.4g}/s x "
            f"{best.residence:.4g} s (Little), {best.most} at once at most there"
        )

    def to_json(self) -> dict[str, Any]:
        probes = [probe.to_json() for probe in self.probes]
        return {"rate": self.rate, "above": plain(self.above), "limit": self.limit, "verdict": self.verdict, "probes": probes}


def saturate(
    measure: Measure, slo: SLO, *, low: float, high: float = math.inf, probes: int = 12, tolerance: float = 0.05
) -> Saturation:
    """Bisect for the highest rate that holds.

    From `low` the rate is doubled until it fails, or halved until it holds; then the gap between the two is halved, in ratio.

    Args:
      measure: what becomes of requests that arrive at a rate, requests a second; the measured ones, without a warm-up.
      low: the first rate to try.
      high: no rate above it is tried.
      probes: at most so many rates are tried.
      tolerance: stop when the lowest rate that fails is within so much of the highest that holds.

    Raises:
      UserError: limits that make no sense.
    """
    if not 0 < low < math.inf or not high >= low:
        raise UserError(f"the search for saturation goes from {low}/s to {high}/s; begin above 0 and end no lower")
    if probes < 1 or not 0 < tolerance:
        raise UserError(f"{probes} probes with a tolerance of {tolerance}; give at least 1, and above 0")
    tried: list[Probe] = []
    holds, fails, rate = 0.0, math.inf, low
    while len(tried) < probes:
        probe = judge(rate, measure(rate), slo)
        tried.append(probe)
        if probe.holds:
            holds = max(holds, rate)
        else:
            fails = min(fails, rate)
        if holds >= high or fails <= holds * (1 + tolerance):
            break
        if not holds:
            rate = fails / 2
        elif fails == math.inf:
            rate = min(2 * holds, high)
        else:
            rate = math.sqrt(holds * fails)
    return Saturation(holds, fails, tuple(tried))


def judge(rate: float, records: Sequence[RequestRecord], slo: SLO) -> Probe:
    """What records say of the rate at which they came."""
    waits = [record.started - record.ready for record in records]
    if all(map(math.isnan, waits)):
        waits = [record.ttft for record in records]
    trend = growth([record.intended for record in records], waits)
    verdicts = slo.verdicts(records)
    counts = littles_law(records).curve[1]
    stays = [record.end - record.intended for record in records if record.answered]
    residence = sum(stays) / len(stays) if stays else math.nan
    holds = bool(records) and all(verdict.met for verdict in verdicts) and not trend.grows
    return Probe(rate, len(records), verdicts, trend, residence, max(counts, default=0), holds)
