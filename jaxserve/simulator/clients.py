"""Who asks, on the virtual clock: an open loop, which comes when it comes, or a closed one, which waits for its answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Protocol

from jaxserve.load.schedule import Closed, Schedule
from jaxserve.load.served import Served
from jaxserve.scheduling.request import Request
from models.errors import UserError


class Clients(Protocol):
    """Where requests come from."""

    @property
    def due(self) -> float:
        """s, when the next request comes; inf if none is known of."""

    def take(self) -> Request:
        """The request that is due."""

    def over(self, answer: Served) -> None:
        """An answer is over, however it ended; a request that is refused, too."""


class OpenLoop:
    """Requests at their arrivals, whatever becomes of earlier ones. They are taken one at a time, so there may be any number.

    Args:
      requests: in the order of their arrival.
    """

    def __init__(self, requests: Iterable[Request]):
        self._requests = iter(requests)
        self._coming = next(self._requests, None)
        self.due = self._coming.arrival if self._coming else math.inf

    def take(self) -> Request:
        """Raises UserError where the next request goes back in time."""
        taken, self._coming = self._coming, next(self._requests, None)
        assert taken is not None
        if self._coming and self._coming.arrival < taken.arrival:
            raise UserError(
                f"request {self._coming.id} arrives at {self._coming.arrival} s, before the last one at {taken.arrival} s; sort them"
            )
        self.due = self._coming.arrival if self._coming else math.inf
        return taken

    def over(self, answer: Served) -> None:
        """It comes all the same."""


class Scheduled:
    """Requests when a schedule of the load harness says that they are due.

    Args:
      schedule: open or closed.
      requests: what is asked, in the order in which it is asked; their ids stand, their arrivals do not, and a deadline keeps its
        distance from the arrival. The load ends with them.
      until: s; what is due from then on is not asked.
    """

    def __init__(self, schedule: Schedule, requests: Iterable[Request], *, until: float = math.inf):
        self._schedule, self._until = schedule, until
        self._requests: Iterator[Request] = iter(requests)
        self._next = next(self._requests, None)
        self._samples: dict[int, int] = {}  # row -> request, of answers that are not over
        self._left: dict[int, int] = {}  # request -> samples that are not over

    @property
    def due(self) -> float:
        due = self._schedule.due
        return due if self._next and due < self._until else math.inf

    def take(self) -> Request:
        at, asked = self._schedule.take(), self._next
        assert asked is not None
        self._next = next(self._requests, None)
        self._samples |= {row: asked.id for row in range(asked.id, asked.id + asked.samples)}
        self._left[asked.id] = asked.samples
        return dataclasses.replace(asked, arrival=at, deadline=at + (asked.deadline - asked.arrival))

    def over(self, answer: Served) -> None:
        id = self._samples.pop(answer.id)
        self._left[id] -= 1
        if not self._left[id]:
            del self._left[id]
            self._schedule.ended(answer.end)


class ClosedLoop(Scheduled):
    """So many clients, each of which asks again when its answer is over; at most so many requests are in the system at once.

    Args:
      clients: how many.
      requests: as of `Scheduled`.
      think: s from the end of an answer to the next request of that client.

    Raises:
      UserError: no clients; a time that is negative or no number.
    """

    def __init__(self, clients: int, requests: Iterable[Request], *, think: float = 0.0):
        super().__init__(Closed(clients, think), requests)
