"""When requests are due. Every kind is an iterator of ascending times, s from the start, drawn from one generator.

Nothing is clipped, and no last arrival is forced: how many come within a time is as random as the process makes it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from models.errors import UserError

LARGEST = 1e6  # burstiness; 1 / LARGEST is the smallest


class Arrivals(Protocol):
    """A process."""

    @property
    def steady(self) -> bool:
        """Its rate doesn't change, so that there may be an equilibrium."""

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Due times, s, ascending; endless unless it says otherwise."""

    def to_json(self) -> dict[str, Any]:
        """Its kind and its figures."""


@dataclasses.dataclass(frozen=True)
class Poisson:
    """Independent exponential gaps: arrivals that know nothing of each other nor of the server. rate: requests a second."""

    rate: float
    steady = True

    def __post_init__(self) -> None:
        _above(self.rate, "the rate")

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        return itertools.accumulate(float(rng.exponential(1 / self.rate)) for _ in itertools.count())

    def to_json(self) -> dict[str, Any]:
        return {"kind": "poisson", "rate": self.rate}


@dataclasses.dataclass(frozen=True)
class Gamma:
    """Gamma-distributed gaps of mean 1 / rate.

    Attributes:
      burstiness: the shape. 1 is Poisson; below come bursts, above it is more even. Gaps have the coefficient of variation
        1 / sqrt(burstiness).
    """

    rate: float
    burstiness: float
    steady = True

    def __post_init__(self) -> None:
        _above(self.rate, "the rate")
        _above(self.burstiness, "the burstiness", LARGEST)

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        shape, scale = self.burstiness, 1 / (self.rate * self.burstiness)
        return itertools.accumulate(float(rng.gamma(shape, scale)) for _ in itertools.count())

    def to_json(self) -> dict[str, Any]:
        return {"kind": "gamma", "rate": self.rate, "burstiness": self.burstiness}


@dataclasses.dataclass(frozen=True)
class Constant:
    """One every 1 / rate s, the first at 0."""

    rate: float
    steady = True

    def __post_init__(self) -> None:
        _above(self.rate, "the rate")

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        return (i / self.rate for i in itertools.count())

    def to_json(self) -> dict[str, Any]:
        return {"kind": "constant", "rate": self.rate}


@dataclasses.dataclass(frozen=True)
class Ramp:
    """A Poisson process whose rate goes from `first` to `last` in a straight line within `over` s, and stays there.

    By inversion: where a process of rate 1 has its k-th arrival at s, this one has it when the area under its rate reaches s. After a
    ramp down to 0 nothing comes any more.
    """

    first: float
    last: float
    over: float
    steady = False

    def __post_init__(self) -> None:
        for rate in (self.first, self.last):
            if not 0 <= rate < math.inf:
                raise UserError(f"the rate of a ramp is {rate}; it must be at least 0 requests a second")
        if not self.first + self.last:
            raise UserError("a ramp from 0 to 0 never sends anything; give a rate above 0 at one of its ends")
        _above(self.over, "the time of the ramp")

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        slope, whole = (self.last - self.first) / self.over, (self.first + self.last) / 2 * self.over
        area = 0.0
        while True:
            area += float(rng.exponential(1.0))
            if area <= whole:
                # first t + slope t^2 / 2 = area, in the form that loses nothing where slope is small
                yield 2 * area / (self.first + math.sqrt(max(self.first**2 + 2 * slope * area, 0.0)))
            elif self.last:
                yield self.over + (area - whole) / self.last
            else:
                return

    def to_json(self) -> dict[str, Any]:
        return {"kind": "ramp", "from": self.first, "to": self.last, "over": self.over}


@dataclasses.dataclass(frozen=True)
class Replay:
    """The times of a trace, and no more. scale: of its times, as it was applied; for the report."""

    recorded: tuple[float, ...]
    scale: float = 1.0
    steady = True  # as far as anybody knows

    @classmethod
    def of(cls, recorded: Iterable[float], scale: float = 1.0) -> Replay:
        """Times as recorded, s.

        Args:
          scale: multiplies them; 0.5 is twice the rate.

        Raises:
          UserError: a scale that is not above 0, or times that go back.
        """
        _above(scale, "the time scale")
        times = tuple(each * scale for each in recorded)
        if any(after < before for before, after in itertools.pairwise(times)):
            raise UserError("arrivals go back in time; sort the trace")
        return cls(times, scale)

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        return iter(self.recorded)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "replay", "arrivals": len(self.recorded), "time_scale": self.scale}


def _above(value: float, what: str, most: float = math.inf) -> None:
    if not 0 < value or value == math.inf:
        raise UserError(f"{what} is {value}; it must be above 0")
    if not 1 / most <= value <= most:
        raise UserError(f"{what} is {value}; it must lie from {1 / most:g} to {most:g}")
