"""A service level objective: limits on percentiles of latencies, what a run makes of them, and which requests were good."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from jaxserve.load.percentile import interval, percentile
from jaxserve.load.quantiles import plain
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.units import seconds
from models.errors import UserError

METRICS = ("ttft", "itl", "tpot", "e2e")
RULE = (
    "one rule for goodput and for the SLO's verdicts: an answer of one token has nothing to wait for after it, so it keeps every limit of "
    "TPOT and ITL (its TPOT counts as 0, as in vLLM's goodput, and it has no gap); a request without an answer, or with an answer without "
    "a token, exceeds every limit"
)
_EXAMPLE = "such as ttft-p95=250ms"


class Verdict(NamedTuple):
    """One limit. `found` is s, inf where more requests went without an answer than the percentile lets be, nan where there was none.

    Attributes:
      interval: of the percentile, s; None where too few values were seen.
      met: the percentile is within the limit.
      sure: so is, or is not, its whole interval.
    """

    metric: str
    q: float
    limit: float
    found: float
    interval: tuple[float, float] | None
    met: bool
    sure: bool

    @property
    def name(self) -> str:
        return f"{self.metric.upper()} P{_plain(self.q)}"

    @property
    def word(self) -> str:
        """met or missed, and whether the sample settles it."""
        if math.isnan(self.found):
            return "nothing seen"
        doubt = "" if self.sure else ", within the error" if self.interval else ", of too few to be sure"
        return ("met" if self.met else "missed") + doubt

    def to_json(self) -> dict[str, Any]:
        bounds = [plain(bound) for bound in self.interval] if self.interval else None
        fields = {"metric": self.metric, "percentile": self.q, "limit": self.limit, "found": plain(self.found)}
        return {**fields, "interval": bounds, "met": self.met, "sure": self.sure}


@dataclasses.dataclass(frozen=True)
class SLO:
    """Limits, s, by metric and percentile: SLO(ttft={95: 0.25}, itl={95: 0.012}).

    A request without an answer exceeds every limit, so P95 limits can't be kept where more than 5 % fail or are refused; see `RULE`.
    """

    ttft: Mapping[float, float] = dataclasses.field(default_factory=dict)
    itl: Mapping[float, float] = dataclasses.field(default_factory=dict)
    tpot: Mapping[float, float] = dataclasses.field(default_factory=dict)
    e2e: Mapping[float, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises UserError for no limit, or one that nothing can keep."""
        limits = list(self.limits())
        if not limits:
            raise UserError(f"an SLO has no limit; give at least one, {_EXAMPLE}")
        for metric, q, limit in limits:
            if not 0 < q < 100:
                raise UserError(f"{metric}-p{_plain(q)} is no percentile; it must be above 0 and below 100, {_EXAMPLE}")
            if not 0 < limit < math.inf:
                raise UserError(f"{metric}-p{_plain(q)} is {limit} s; it must be above 0, {_EXAMPLE}")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Of texts such as "ttft-p95=250ms", or several in one, with commas.

        Raises:
          UserError: another metric, no percentile, no unit, or a limit that is given twice.
        """
        found: dict[str, dict[float, float]] = {metric: {} for metric in METRICS}
        for text in itertools.chain.from_iterable(each.split(",") for each in texts):
            name, equals, value = text.strip().partition("=")
            metric, _, percent = name.strip().lower().partition("-p")
            try:
                q = float(percent)
            except ValueError:
                q = math.nan
            if metric not in METRICS or not equals or math.isnan(q):
                raise UserError(f"{text.strip()!r} is no limit; give METRIC-pN=TIME with {', '.join(METRICS)}, {_EXAMPLE}")
            if q in found[metric]:
                raise UserError(f"{name} is given twice; give each limit once")
            found[metric][q] = seconds(value, name)
        return cls(**found)

    def limits(self) -> Iterator[tuple[str, float, float]]:
        """(metric, percentile, s)."""
        for metric in METRICS:
            for q, limit in getattr(self, metric).items():
                yield metric, q, limit

    def check_step(self, step: float, witness: str) -> None:
        """Raise UserError where tokens can't come as fast as is asked.

        Args:
          step: s that the quickest step takes, one row alone.
          witness: analytical, measured, ...: who says so.
        """
        for metric, q, limit in self.limits():
            if limit < step:
                raise UserError(
                    f"{metric}-p{_plain(q)} is {limit * 1e3:.4g} ms, below one step, which takes {step * 1e3:.4g} ms ({witness}): no load "
                    "is light enough; raise the limit, or take a faster chip or a smaller model"
                )

    def good(self, record: RequestRecord) -> bool:
        """Whether a request was answered and kept every limit itself, see `metrics.DEFINITIONS`."""
        for metric in METRICS:
            if limits := getattr(self, metric):
                q = max(limits)
                if not percentile(_gaps(record) if metric == "itl" else [_value(record, metric)], q) <= limits[q]:
                    return False
        return True

    def verdicts(self, records: Sequence[RequestRecord]) -> tuple[Verdict, ...]:
        """Each limit, over all requests of a run."""
        found = []
        for metric, q, limit in self.limits():
            each = _pooled(records) if metric == "itl" else [_value(record, metric) for record in records]
            found.append(_verdict(metric, q, limit, each))
        return tuple(found)

    def to_json(self) -> dict[str, dict[str, float]]:
        return {metric: {_plain(q): limit for q, limit in getattr(self, metric).items()} for metric in METRICS}

    @classmethod
    def from_json(cls, given: Mapping[str, Mapping[str, float]]) -> Self:
        """Raises UserError for what is no SLO."""
        try:
            return cls(
                **{metric: {float(q): limit for q, limit in given[metric].items()} for metric in METRICS if metric in given}
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"slo is {str(given)[:60]}, which is none ({error}); give what to_json gave") from None


def _plain(q: float) -> str:
    """A percentile as it was written, 95 or 99.99999; seven digits of it are no fewer than P100."""
    return f"{q:.15g}"


def _value(record: RequestRecord, metric: str) -> float:
    """TTFT, TPOT or E2E as limits see it, s: `RULE`."""
    if not (record.answered and record.tokens):
        return math.inf
    value: float = 0.0 if metric == "tpot" and record.output <= 1 else getattr(record, metric)
    return value


def _gaps(record: RequestRecord) -> Sequence[float]:
    """The gaps of one request as limits see them, s: `RULE`."""
    return (record.itl or (0.0,)) if record.answered and record.tokens else (math.inf,)


def _pooled(records: Sequence[RequestRecord]) -> list[float]:
    """The gaps of all requests as limits see them, s."""
    began = [record for record in records if record.answered and record.tokens]
    gaps = list(itertools.chain.from_iterable(record.itl for record in began)) or [0.0] * len(began)
    # Of a request without an answer nobody knows how many gaps it would have had; as many as the others, say.
    lost = len(records) - len(began)
    return gaps + [math.inf] * (round(lost * len(gaps) / len(began)) if began else lost)


def _verdict(metric: str, q: float, limit: float, values: Sequence[float]) -> Verdict:
    point = percentile(values, q)
    bounds = interval(values, q)
    met = point <= limit
    sure = bounds is not None and (bounds[1] <= limit if met else bounds[0] > limit)
    return Verdict(metric, q, limit, point, bounds, met, sure)
