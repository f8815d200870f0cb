"""Faults at work: a pace with slow steps and stalls, clients among whom a burst comes, and those who leave."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterable, Sequence

from jaxserve.load.served import Served
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.simulator.clients import Clients
from jaxserve.simulator.faults import Burst, Leave, Slow, Stall
from jaxserve.simulator.pace import Pace


class FaultyPace(Pace):
    """Another pace, in which some steps are slow and workers stall.

    Args:
      pace: what it would be.
      slow: each comes true once; those that have an end, for every step that begins before it.
      stalls: in the order of time.
    """

    def __init__(self, pace: Pace, slow: Iterable[Slow], stalls: Sequence[Stall]):
        self._pace, self._stalls, slow = pace, stalls, tuple(slow)
        self._steps = {each.step: each.factor for each in slow if each.step is not None}
        self._times = deque(sorted((each.at, each.factor) for each in slow if each.at is not None and each.until is None))
        self._spells = [(each.at, each.until, each.factor) for each in slow if each.at is not None and each.until is not None]

    def ready(self, now: float, step: int) -> float:
        return self._pace.ready(now, step)

    def again(self, now: float, step: int) -> float:
        return self._pace.again(now, step)

    def end(self, plan: Plan, begin: float) -> float:
        took = self._pace.end(plan, begin) - begin
        took *= self._steps.pop(plan.step, 1.0)
        if self._times and begin >= self._times[0][0]:
            took *= self._times.popleft()[1]
        for since, until, factor in self._spells:
            if since <= begin < until:
                took *= factor
        end = begin + took
        for stall in self._stalls:
            if stall.worker == plan.worker and stall.at < end and stall.at + stall.seconds > begin:
                end += stall.seconds - max(begin - stall.at, 0.0)  # what is left of it
        return end


class Crowd:
    """Clients, and bursts between them. Ids are given out anew, from 0 on in the order of arrival, for those of a burst come between.

    Args:
      clients: the usual ones; at the same moment they come first.
      bursts: in the order of time.
    """

    def __init__(self, clients: Clients, bursts: Sequence[Burst]):
        self._clients = clients
        self._burst = deque(burst for burst in bursts for _ in range(burst.requests))
        self._next = self._made_up = 0
        self._was: dict[int, int] = {}  # row -> its own id, of the usual clients' answers that are not over

    @property
    def due(self) -> float:
        return min(self._clients.due, self._burst[0].at if self._burst else math.inf)

    def take(self) -> Request:
        id = self._next
        if self._burst and self._burst[0].at < self._clients.due:
            burst = self._burst.popleft()
            self._next += 1
            self._made_up -= burst.prompt  # tokens that no other prompt has, for memory may look for known beginnings
            return Request(id, range(self._made_up, self._made_up + burst.prompt), burst.output, burst.at)
        request = self._clients.take()
        self._next += request.samples
        self._was |= {id + i: request.id + i for i in range(request.samples)}
        return dataclasses.replace(request, id=id)

    def over(self, answer: Served) -> None:
        if answer.id in self._was:
            self._clients.over(answer._replace(id=self._was.pop(answer.id)))


class Leaving(Observer):
    """Clients that go away, at a time or with a token.

    Args:
      cancels: (s, id of the row).
      leaves: the same, and those who wait for a number of tokens first.
    """

    def __init__(self, cancels: Iterable[tuple[float, int]], leaves: Iterable[Leave]):
        leaves = tuple(leaves)
        at = [(leave.at, leave.id) for leave in leaves if leave.at is not None]
        self._serial = itertools.count()
        self._due = [
            (when, next(self._serial), id) for when, id in (*cancels, *at)
        ]  # a heap; of the same moment in their order
        heapq.heapify(self._due)
        self._patience = {leave.id: leave.tokens for leave in leaves if leave.tokens is not None}

    @property
    def due(self) -> float:
        """When the next one goes; inf if none is known of."""
        return self._due[0][0] if self._due else math.inf

    @property
    def counts(self) -> bool:
        """Whether it has to see what each step did."""
        return bool(self._patience)

    def take(self) -> int:
        """The id of who goes."""
        return heapq.heappop(self._due)[2]

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        for id, tokens in zip(plan.ids, outcome.tokens, strict=True):
            if id in self._patience:
                self._patience[id] -= len(tokens)
                if self._patience[id] <= 0:
                    del self._patience[id]
                    heapq.heappush(self._due, (now, next(self._serial), id))
