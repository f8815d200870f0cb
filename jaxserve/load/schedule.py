"""When the next request is due: open loop, whatever the server does, or closed loop, when an answer has ended."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Protocol

from models.errors import UserError


class Schedule(Protocol):
    """Attributes:
    due: s, when the next request is due; inf while none is known to be.
    """

    @property
    def due(self) -> float: ...

    def take(self) -> float:
        """The next one is sent: when it was due."""

    def ended(self, at: float) -> None:
        """A request has ended, at s."""


class Open:
    """An absolute schedule: times that were drawn before, and independently of the server. No request waits for another one."""

    def __init__(self, times: Iterator[float]):
        self._times = times
        self._next = next(times, math.inf)

    @property
    def due(self) -> float:
        return self._next

    def take(self) -> float:
        due, self._next = self._next, next(self._times, math.inf)
        return due

    def ended(self, at: float) -> None:
        """Nothing: that is the point of it."""


class Closed:
    """N clients, each of which sends its next request when it has had its answer and, perhaps, thought. All begin at 0.

    Args:
      clients: N.
      think: s from an answer to the next request.

    Raises:
      UserError: no client, or a negative time.
    """

    def __init__(self, clients: int, think: float = 0.0):
        if clients < 1:
            raise UserError(f"a closed loop of {clients} clients sends nothing; give at least 1")
        if not 0 <= think < math.inf:
            raise UserError(f"the clients think for {think} s; it must be at least 0")
        self._due, self._think = [0.0] * clients, think

    @property
    def due(self) -> float:
        return self._due[0] if self._due else math.inf

    def take(self) -> float:
        return heapq.heappop(self._due)

    def ended(self, at: float) -> None:
        heapq.heappush(self._due, at + self._think)
