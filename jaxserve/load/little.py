"""Little's law at the client's boundary: requests that are due and not over, against their rate and their stay.

L = lambda W (Little 1961) holds of long-run means wherever arrivals and departures balance. Over a window of a run it is a check of the
books and of equilibrium: L is the area under the number of open requests, taken by a sweep over their beginnings and ends, lambda W comes
from the requests that arrive in the window, with the whole of their stay.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxserve.load.quantiles import plain
from jaxserve.load.recorder import UNFINISHED, RequestRecord
from jaxserve.load.stability import growth

STAYS = 10  # a window shorter than so many mean stays is mostly its edges
TOLERANCE = 0.1  # of both sides, within which they agree


@dataclasses.dataclass(frozen=True)
class Little:
    """Both sides.

    Attributes:
      start, stop: s, the window.
      arrivals: in it.
      concurrency: mean number of open requests in it, by sweep line.
      rate: arrivals a second.
      residence: mean s from when a request is due to its end.
      product: rate times residence.
      comparable: whether both sides may be compared.
      reason: why not; empty where they may.
      curve: (times, counts): from each time on so many requests are open, over the whole run.
    """

    start: float
    stop: float
    arrivals: int
    concurrency: float
    rate: float
    residence: float
    product: float
    comparable: bool
    reason: str
    curve: tuple[tuple[float, ...], tuple[int, ...]]

    @property
    def difference(self) -> float:
        """Of the product from the concurrency, as a share of it; nan where there is none."""
        return (self.product - self.concurrency) / self.concurrency if self.concurrency else math.nan

    @property
    def verdict(self) -> str:
        if not self.comparable:
            return f"may not be compared: {self.reason}"
        agree = abs(self.difference) <= TOLERANCE
        return f"{'agree' if agree else 'DISAGREE'} within {TOLERANCE:.0%} ({self.difference:+.1%})"

    def to_json(self) -> dict[str, Any]:
        """Without the curve, which follows from the records."""
        numbers = ("start", "stop", "concurrency", "rate", "residence", "product", "difference")
        words = {"arrivals": self.arrivals, "comparable": self.comparable, "reason": self.reason, "verdict": self.verdict}
        return {**{name: plain(getattr(self, name)) for name in numbers}, **words}


def littles_law(
    records: Sequence[RequestRecord],
    *,
    start: float | None = None,
    stop: float | None = None,
    steady: bool = True,
) -> Little:
    """Both sides over a window.

    Args:
      records: all requests of the run, those of a warm-up included: they are there as well.
      start, stop: s, of the window; from the first to the last arrival by default. After the last arrival nothing balances.
      steady: arrivals come at one rate.
    """
    begins = np.array([record.intended for record in records], dtype=float)
    ends = np.array([record.end for record in records], dtype=float)
    times, counts = _sweep(begins, ends)
    first = start if start is not None else float(begins.min()) if len(begins) else 0.0
    last = stop if stop is not None else float(begins.max()) if len(begins) else 0.0
    span = max(last - first, 0.0)
    # An arrival at the end of the window has no time in it, one at its beginning has.
    inside = [record for record in records if first <= record.intended < last]
    area = float(np.sum(np.clip(np.minimum(ends, last) - np.maximum(begins, first), 0.0, None)))
    stays = [record.end - record.intended for record in inside]
    rate = len(inside) / span if span else math.nan
    residence = sum(stays) / len(stays) if stays else math.nan
    reason = _reason(inside, span, residence, steady)
    return Little(
        start=first,
        stop=last,
        arrivals=len(inside),
        concurrency=area / span if span else math.nan,
        rate=rate,
        residence=residence,
        product=rate * residence,
        comparable=not reason,
        reason=reason,
        curve=(tuple(times.tolist()), tuple(counts.tolist())),
    )


def _sweep(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(times, ascending and each once, how many are open from each on)."""
    times, at = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    change = np.zeros(len(times), dtype=int)
    np.add.at(change, at[: len(begins)], 1)
    np.add.at(change, at[len(begins) :], -1)
    return times, np.cumsum(change)


def _reason(inside: Sequence[RequestRecord], span: float, residence: float, steady: bool) -> str:
    """Why the sides may not be compared; the first that applies."""
    if len(inside) < 2 or not span:
        return "too few arrivals: a rate needs at least two in the window"
    if not steady:
        return "a ramp or a burst: the rate of arrivals changes, so that there is no equilibrium"
    unfinished = sum(record.reason == UNFINISHED for record in inside)
    if unfinished:
        return f"unfinished work: {unfinished} requests had not ended, and nobody knows their stay"
    lost = sum(not record.answered for record in inside)
    if lost:
        return f"rejections: {lost} of {len(inside)} requests were refused, failed or taken back, and stayed as long as no served one"
    if span < STAYS * residence:
        return f"too short: the window is {span / residence:.1f} mean stays long, and its edges count below {STAYS}"
    trend = growth([record.intended for record in inside], [record.end - record.intended for record in inside])
    if trend.grows:
        return f"no equilibrium: the stay grows by {trend.slope:.3g} s a second (p = {trend.p:.2g}), work piles up"
    return ""
