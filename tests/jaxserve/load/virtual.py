"""A server on a virtual clock, with a known service time and so many places: a `Client` for tests."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Self

from jaxserve.load.client import Item, Known
from jaxserve.load.recorder import UNFINISHED, RequestRecord
from tests.jaxserve.load.records import record


class Blocking:
    """Serves one request after the other, or `places` at once; sending blocks or not.

    Args:
      service: s of each request.
      places: served at once; the rest waits.
      blocks: the client waits for each answer before it looks at what is due: it has one connection, and comes to be late.
      dies: s at which the server is gone.
      interrupt: s at which Ctrl-C is hit.
    """

    def __init__(
        self, service: float, places: int = 1, *, blocks: bool = False, dies: float = math.inf, interrupt: float = math.inf
    ):
        self.service, self.places, self.blocks, self.dies, self.interrupt = service, places, blocks, dies, interrupt
        self.begin()

    def begin(self) -> None:
        self.now, self.gone = 0.0, ""
        self.waiting: deque[tuple[Item, float, float]] = deque()
        self.running: list[tuple[float, int, Item, float, float]] = []
        self.done: list[RequestRecord] = []
        self.most = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def clock(self) -> float:
        return self.now

    @property
    def idle(self) -> bool:
        return not (self.running or self.done)

    def send(self, item: Item, intended: float) -> None:
        if self.blocks:
            sent, self.now = self.now, self.now + self.service
            self.done.append(record(item.id, intended, (self.now,), sent=sent, prompt=len(item.prompt)))
            return
        self.waiting.append((item, intended, self.now))
        self._start()

    def wait(self, until: float) -> list[RequestRecord]:
        if self.done:
            over, self.done = self.done, []
            return over
        due = min(until, self.running[0][0] if self.running else math.inf)
        assert due < math.inf
        if self.interrupt <= due:
            self.now, self.interrupt = max(self.now, self.interrupt), math.inf
            raise KeyboardInterrupt
        if self.dies <= due:
            self.now, self.gone = self.dies, "the server is gone"
            return []
        over = []
        self.now = max(self.now, due)
        while self.running and self.running[0][0] <= self.now:
            end, _, item, intended, sent = heapq.heappop(self.running)
            over.append(record(item.id, intended, (end,), sent=sent, prompt=len(item.prompt)))
            self._start(end)
        return over

    def stop(self) -> list[RequestRecord]:
        left = [(item, intended, sent) for _, _, item, intended, sent in self.running] + list(self.waiting)
        self.running, self.waiting = [], deque()
        return [record(item.id, intended, (), sent=sent, end=self.now, reason=UNFINISHED) for item, intended, sent in left]

    def known(self) -> Known:
        return Known({"target": "virtual"})

    def _start(self, at: float | None = None) -> None:
        while self.waiting and len(self.running) < self.places:
            item, intended, sent = self.waiting.popleft()
            begin = self.now if at is None else at
            heapq.heappush(self.running, (begin + self.service, item.id, item, intended, sent))
        self.most = max(self.most, len(self.running) + len(self.waiting))
