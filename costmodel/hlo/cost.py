"""What an instruction or a program costs: FLOPs, bytes, transcendental functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """FLOPs, bytes and evaluations of transcendental functions (exp, log, rsqrt, ...), which XLA counts apart from FLOPs.

    Whole numbers stay exact Python integers, however large the sum: XLA itself adds in float32.
    """

    flops: float = 0
    bytes: float = 0
    transcendentals: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes, self.transcendentals + other.transcendentals)

    def __sub__(self, other: Cost) -> Cost:
        return self + other * -1

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.bytes * times, self.transcendentals * times)

    def at_least(self, other: Cost) -> Cost:
        """The larger of both in each field."""
        pairs = ((self.flops, other.flops), (self.bytes, other.bytes), (self.transcendentals, other.transcendentals))
        return Cost(*(max(pair) for pair in pairs))


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of costs; zero of none."""
    return sum(costs, Cost())
