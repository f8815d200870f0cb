"""Queueing results with the conditions under which they hold. Seconds, and requests a second.

How batches form stands in `costmodel.concurrency.forming`, what static batches lock in `costmodel.concurrency.static_batch`. A
result that does not exist, as at a load of 1 and more, is refused and not printed as a large number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from costmodel.analytical.rows import check_quantity
from models.errors import UserError

_FINITE = np.finfo(float).max


def concurrency(rate: float, residence: float) -> float:
    """L = lambda W: how many are within a boundary on average (Little 1961).

    Holds for averages over a time in which the system is in equilibrium, whatever the distributions, the order of service and the number
    of servers, if arrivals, departures and rejections are counted at one boundary: `rate` is of those that come in, `residence` the mean
    time from there to their leaving. It does not hold for quantiles, nor during a ramp, nor where work is left at the end.
    """
    check_quantity("arrival rate", rate, most=_FINITE)
    check_quantity("mean residence", residence, most=_FINITE)
    return rate * residence


@dataclasses.dataclass(frozen=True)
class MG1:
    """One server, Poisson arrivals, any service times, first come first served (Pollaczek 1930, Khinchine 1932).

    Conditions: service times are independent of each other and of arrivals, the queue is unbounded, nobody gives up, and one request is
    served at a time: an engine that runs one prompt or one static batch at a time, not one with continuous batching.

    Attributes:
      rate: arrivals a second.
      mean, variance: of a service time, in s and s^2; variance 0 is M/D/1, mean^2 is M/M/1.

    Raises:
      UserError: load rate * mean of 1 or more, for which no equilibrium exists.
    """

    rate: float
    mean: float
    variance: float = 0.0

    def __post_init__(self) -> None:
        check_quantity("arrival rate", self.rate, most=_FINITE)
        check_quantity("mean service time", self.mean, most=_FINITE)
        if not 0 <= self.variance < math.inf:
            raise UserError(f"M/G/1: the variance of service times is {self.variance:g} s^2; it must be at least 0 and finite")
        _stable("M/G/1", self.load, self.rate, 1 / self.mean)

    @classmethod
    def of(cls, rate: float, times: Sequence[float]) -> MG1:
        """From service times that were seen, each as likely as the others. Raises UserError where there are none."""
        check_quantity("service times", times, most=_FINITE)
        return cls(rate, float(np.mean(times)), float(np.var(times)))

    @property
    def load(self) -> float:
        """rho, the share of the time that the server is busy."""
        return self.rate * self.mean

    @property
    def wait(self) -> float:
        """Mean s in the queue: lambda E[S^2] / (2 (1 - rho))."""
        return self.rate * (self.variance + self.mean**2) / (2 * (1 - self.load))

    @property
    def residence(self) -> float:
        """Mean s from arrival to end."""
        return self.wait + self.mean

    @property
    def waiting(self) -> float:
        """Requests in the queue on average."""
        return concurrency(self.rate, self.wait)


@dataclasses.dataclass(frozen=True)
class BatchService:
    """A server that, whenever it is free, takes all that wait (at least one) as one batch; a batch of b takes base + each * b seconds.

    Conditions: Poisson arrivals, batch times that depend on the size alone, no limit on the size. It is a static or dynamic batcher
    without delay whose answers have one length; with a limit B it holds as long as batches seldom reach B, see `batch_limit`.

    Attributes:
      rate: requests a second.
      base: s of every batch: weights read once.
      each: s for each request in it.

    Raises:
      UserError: rate * each is 1 or more: however large the batches, they do not keep up.
    """

    rate: float
    base: float
    each: float

    def __post_init__(self) -> None:
        check_quantity("arrival rate", self.rate, most=_FINITE)
        check_quantity("seconds of a batch", self.base, most=_FINITE)
        check_quantity("seconds of each request in a batch", self.each, most=_FINITE)
        _stable("batch service", self.load, self.rate, 1 / self.each)

    @property
    def load(self) -> float:
        """The share of a server that the requests would keep busy in endless batches."""
        return self.rate * self.each

    @property
    def most(self) -> float:
        """s: an upper bound of the mean from arrival to end, close to it at every load (Inoue 2021, "Queueing analysis of GPU-based
        inference servers with dynamic batching", theorem 2): the smaller of a bound for light and one for heavy traffic.

        How it comes about: `chain` says the mean exactly by the mean size m of a batch, and falls with m. Now m is at least 1, for nobody
        serves an empty batch, and at least rate base / (1 - load), where no batch has to be waited for. These two m give the two bounds.
        """
        rate, base, each, load = self.rate, self.base, self.each, self.load
        light = (each + base) / (2 * (1 - load)) * (1 + 2 * rate * base + (1 - rate * base) / (1 + load))
        heavy = 1.5 * base / (1 - load) + each / 2 * (load + 2) / (1 - load**2)
        return min(light, heavy)

    def chain(self, size: float) -> float:
        """s: the mean from arrival to end if batches hold `size` requests on average, which is all that has to be known of them.

        The next batch B' is who comes during this one, A of mean rate (base + each B) and Poisson given B, or one where nobody does, with
        probability p: B' = A + [A = 0]. In equilibrium p = size (1 - load) - rate base, and from E[B'^2] = E[A^2] + p follows E[B^2]. A
        request stays its own batch, size-biased, E[B time] / size, and before it what is left of the batch that it finds (Poisson
        arrivals see averages), rate E[time^2] / (2 size).
        """
        rate, base, each, load = self.rate, self.base, self.each, self.load
        alone = size * (1 - load) - rate * base
        mean = rate * (base + each * size)
        square = (mean + rate**2 * base * (base + 2 * each * size) + alone) / (1 - load**2)
        own = base * size + each * square
        found = base * (base + 2 * each * size) + each**2 * square
        return (own + rate * found / 2) / size

    @property
    def least(self) -> float:
        """s: a lower bound of the same mean.

        Let m be the mean size of a batch. Of the m arrivals of a batch one may have had to be waited for, which has a probability of at
        most exp(-rate (base + each)); so m = (rate base + that) / (1 - load) lies between two figures. A request's own batch takes no
        less than base + each m on average, for it is more likely one of the larger ones. What is left of the batch that it finds
        (Poisson arrivals see averages) is rate E[time^2] / (2 m) >= rate (base + each m)^2 / (2 m), least at m = base / each.
        """
        alone = math.exp(-self.rate * (self.base + self.each))
        few = max(self.rate * self.base / (1 - self.load), 1.0)
        many = max((self.rate * self.base + alone) / (1 - self.load), few)
        size = min(max(self.base / self.each, few), many)
        return self.base + self.each * few + self.rate * (self.base + self.each * size) ** 2 / (2 * size)


def batch_limit(rate: float, size: int, seconds: Callable[[int], float]) -> float:
    """The load of a server that runs batches of up to `size` requests: rate * seconds(size) / size.

    A necessary condition whatever the policy, if a request's share of a batch falls with the batch's size.

    Raises:
      UserError: the load is 1 or more, so that queues grow without end; the message says the rate that could be kept up.
    """
    check_quantity("arrival rate", rate, most=_FINITE)
    if size < 1:
        raise UserError(f"batch service: batches of {size} requests; there must be at least 1")
    took = seconds(size)
    check_quantity("seconds of a batch", took, most=_FINITE)
    load = rate * took / size
    _stable(f"batch service with batches of {size}", load, rate, size / took)
    return load


def full_batches(rate: float, size: int, took: float) -> tuple[float, float]:
    """(lower, upper) bound of the mean s from arrival to end where batches leave only full, each served in `took` s, one at a time.

    A batch forms in (size - 1) / (2 rate) on average and is served in `took`; between batches there are Erlang times of `size` gaps, so
    they queue as in GI/D/1, for which Kingman's bound holds: rate_b sigma_a^2 / (2 (1 - rho)) with sigma_a^2 = size / rate^2
    (Kingman 1962). Conditions: Poisson arrivals, no timer, one length of batch.

    Raises:
      UserError: the load rate * took / size is 1 or more.
    """
    load = batch_limit(rate, size, lambda _: took)
    alone = (size - 1) / (2 * rate) + took
    return alone, alone + 1 / (2 * rate * (1 - load))


def _stable(what: str, load: float, rate: float, most: float) -> None:
    if not load < 1:
        raise UserError(
            f"{what}: {rate:g} requests/s are a load of {load:.3g}, and from 1 on the queue grows without end; stay below {most:.4g}/s"
        )
