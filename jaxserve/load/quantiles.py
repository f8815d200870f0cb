"""One measured quantity over many requests: how many there were, the mean, and percentiles with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from jaxserve.load.percentile import enough, interval, percentile

PERCENTS = (50, 90, 95, 99)


class Quantiles(NamedTuple):
    """Of one quantity. Times are s; nan where nothing was seen.

    Attributes:
      n: values.
      mean, p50, p90, p95, p99, most: of them; the rule is `percentile.RULE`.
      intervals: of each percentile, at 95 %; None where there are too few values for one.
      few: percentiles for which there are too few values: they are flagged wherever they are shown.
    """

    n: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float
    intervals: Mapping[int, tuple[float, float] | None]
    few: tuple[int, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """nan among the values are not counted: they say that there was nothing to measure."""
        seen = np.asarray([value for value in values if not math.isnan(value)], dtype=float)
        seen.sort()
        return cls(
            n=len(seen),
            mean=float(seen.mean()) if len(seen) else math.nan,
            p50=percentile(seen, 50),
            p90=percentile(seen, 90),
            p95=percentile(seen, 95),
            p99=percentile(seen, 99),
            most=float(seen[-1]) if len(seen) else math.nan,
            intervals={q: interval(seen, q) for q in PERCENTS},
            few=tuple(q for q in PERCENTS if not enough(len(seen), q)),
        )

    def at(self, q: int) -> float:
        """P50, P90, P95 or P99."""
        return float(getattr(self, f"p{q}"))

    def to_json(self) -> dict[str, Any]:
        """null for what was not seen."""
        points = {name: plain(getattr(self, name)) for name in ("mean", *(f"p{q}" for q in PERCENTS), "most")}
        return {
            "n": self.n,
            **points,
            "intervals": {f"p{q}": list(bounds) if bounds else None for q, bounds in self.intervals.items()},
            "few": [f"p{q}" for q in self.few],
        }


def plain(value: float) -> float | None:
    """A number for JSON, which knows no nan and no inf."""
    return value if math.isfinite(value) else None
