"""A server that takes a fixed time for each request, and serves one at a time: for a load harness to be tried on."""

from __future__ import annotations

import math
import time
from collections import deque

from jaxserve.load.client import Item, Known
from jaxserve.load.recorder import UNFINISHED, RequestRecord


class OneAtATime:
    """A `Client` of a server that takes a fixed time for each request and serves one at a time, in order; the clock is real.

    Args:
      service: s.
    """

    gone = ""

    def __init__(self, service: float):
        self._service = service
        self._queue: deque[tuple[Item, float, float]] = deque()
        self._free = 0.0  # s, since when, or until when it is busy

    def __enter__(self) -> OneAtATime:
        return self

    def __exit__(self, *error: object) -> None:
        self._queue.clear()

    def begin(self) -> None:
        self._queue.clear()
        self._start, self._free = time.monotonic(), 0.0

    def clock(self) -> float:
        return time.monotonic() - self._start

    def send(self, item: Item, intended: float) -> None:
        self._queue.append((item, intended, self.clock()))

    @property
    def idle(self) -> bool:
        return not self._queue

    def wait(self, until: float) -> list[RequestRecord]:
        end = self._end()
        time.sleep(max(min(until, end) - self.clock(), 0.0))
        if self.clock() < end:
            return []
        return [self._over("length")]

    def stop(self) -> list[RequestRecord]:
        return [self._over(UNFINISHED) for _ in range(len(self._queue))]

    def known(self) -> Known:
        return Known({"target": "a server that sleeps", "service": self._service})

    def _end(self) -> float:
        """When the first in the queue will have been served; inf where nobody waits."""
        return max(self._free, self._queue[0][2]) + self._service if self._queue else math.inf

    def _over(self, reason: str) -> RequestRecord:
        (item, intended, sent), started = self._queue[0], max(self._free, self._queue[0][2])
        self._queue.popleft()
        self._free = now = self.clock()
        tokens = (now,) if reason != UNFINISHED else ()
        return RequestRecord(item.id, intended, sent, sent, sent, started, now, tokens, now, 1, len(tokens), reason=reason)
