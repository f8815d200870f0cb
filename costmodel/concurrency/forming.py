"""How long requests wait for a batch to form, before anybody serves them.

A batch leaves with its `target`th request, or when a timer says so that starts with its first (the max queue delay of Triton's dynamic
batcher). Under Poisson arrivals the first of them waits for target - 1 exponential gaps, so an Erlang time without an upper bound; the
timer bounds it. The results hold for a server that is idle when the batch forms, and that forms the next one from later arrivals.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from costmodel.analytical.rows import check_quantity
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Erlang:
    """The time until the `stages`th arrival of a Poisson process of `rate` a second (Erlang 1917); 0 for no stages."""

    stages: int
    rate: float

    def __post_init__(self) -> None:
        if self.stages < 0:
            raise UserError(f"Erlang: {self.stages} stages; there must be at least 0")
        check_quantity("arrival rate", self.rate, most=np.finfo(float).max)

    @property
    def mean(self) -> float:
        """s: k / rate."""
        return self.stages / self.rate

    @property
    def variance(self) -> float:
        """s^2: k / rate^2."""
        return self.stages / self.rate**2

    def reached(self, seconds: float) -> float:
        """The probability that it takes at most so long: that a Poisson variable of mean rate * seconds is at least k."""
        if not seconds >= 0:
            return 0.0
        if seconds == math.inf:
            return 1.0
        mean = self.rate * seconds
        if mean == 0:
            return float(self.stages == 0)
        fewer = [math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(self.stages)]
        return max(1.0 - math.fsum(fewer), 0.0)

    def quantile(self, q: float) -> float:
        """s that it stays below with probability `q`, 0 < q < 1, by bisection to the last digits of a float.

        Raises:
          UserError: q is 0, 1, or beyond.
        """
        if not 0 < q < 1:
            raise UserError(f"Erlang: the quantile {q:g} is asked for; it must lie between 0 and 1, such as 0.95")
        low, high = 0.0, max(self.mean, 1 / self.rate)
        while self.reached(high) < q:
            high *= 2
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.reached(middle) < q else (low, middle)
        return high if self.stages else 0.0


@dataclasses.dataclass(frozen=True)
class Forming:
    """A batch of `target` requests that forms under Poisson arrivals of `rate` a second, for at most `delay` s after its first.

    Attributes:
      rate: requests a second.
      target: requests with which it leaves at once.
      delay: s; inf for a batch that waits as long as it takes.
    """

    rate: float
    target: int
    delay: float = math.inf

    def __post_init__(self) -> None:
        if self.target < 1:
            raise UserError(f"batch forming: the target is {self.target} requests; it must be at least 1")
        if not self.delay >= 0:
            raise UserError(f"batch forming: the queue delay is {self.delay:g} s; it must be at least 0")
        check_quantity("arrival rate", self.rate, most=np.finfo(float).max)

    @property
    def first(self) -> Erlang:
        """The time until it is full, counted from its first request: what that one waits where no timer is."""
        return Erlang(self.target - 1, self.rate)

    @property
    def mean_first(self) -> float:
        """s that the first request waits on average: the integral of P(not full yet) up to the delay.

        With k = target - 1 that is the sum over i = 1..k of P(Erlang(i) <= delay) / rate; k / rate without a timer.
        """
        return math.fsum(Erlang(i, self.rate).reached(self.delay) for i in range(1, self.target)) / self.rate

    def quantile_first(self, q: float) -> float:
        """s that the first request waits at most, with probability `q`. Raises UserError as `Erlang.quantile`."""
        return min(self.first.quantile(q), self.delay)

    @property
    def full(self) -> float:
        """The probability that it leaves full, and not because of the timer."""
        return self.first.reached(self.delay)

    @property
    def mean_size(self) -> float:
        """Requests with which it leaves on average: one, and each other that comes in time."""
        return 1.0 + math.fsum(Erlang(i, self.rate).reached(self.delay) for i in range(1, self.target))

    @property
    def mean(self) -> float:
        """s that a request waits on average, whichever of the batch it is: (target - 1) / (2 rate) without a timer.

        All waits of a batch together over its size (renewal reward): while n more than the first have come, n + 1 wait.
        """
        together = math.fsum((n + 1) * Erlang(n + 1, self.rate).reached(self.delay) for n in range(self.target - 1))
        return together / self.rate / self.mean_size


def deterministic_waits(gap: float, target: int, delay: float = math.inf) -> np.ndarray:
    """s that each request of a batch waits, f64 [requests], where one comes every `gap` s: 140, 120, ... 0 ms for 20 ms and 8.

    Args:
      gap: s between arrivals.
      target: requests with which the batch leaves at once.
      delay: s after the first request at which it leaves in any case; whoever comes at that very moment is of it.

    Raises:
      UserError: a gap or target that is not above 0, a delay below 0.
    """
    check_quantity("gap between arrivals", gap, most=np.finfo(float).max)
    if target < 1:
        raise UserError(f"batch forming: the target is {target} requests; it must be at least 1")
    if not delay >= 0:
        raise UserError(f"batch forming: the queue delay is {delay:g} s; it must be at least 0")
    arrivals = np.arange(target) * gap
    leaves = min(float(arrivals[-1]), delay)
    mine = arrivals[arrivals <= leaves]
    return np.arange(target - 1, -1, -1) * gap if len(mine) == target else leaves - mine
