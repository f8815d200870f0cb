"""What became of every answer, from what the scheduler is seen to do: the same books for the simulator and for a real run."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult
from models.errors import UserError

CANCELLED, EXPIRED, REFUSED = "cancelled", "expired", "refused"


class Served(NamedTuple):
    """One answer that is over: of a request, or of one of its samples. Times are s on the scheduler's clock, nan for what never was.

    Attributes:
      id: of the row.
      arrival: of the request.
      admitted: when it was first given memory; a sample's is its request's.
      first, last: when its first and its last token were known. Of several steps in one plan all tokens are known at the end.
      end: when it left.
      prompt, tokens: how many it had and was given.
      preemptions: how often it lost its memory.
      reason: "length", "stop", or what else an outcome says; "cancelled", "expired", "refused".
    """

    id: int
    arrival: float
    admitted: float
    first: float
    last: float
    end: float
    prompt: int
    tokens: int
    preemptions: int
    reason: str


@dataclasses.dataclass(slots=True)
class _Live:
    """An answer that waits or runs. All samples of a request are there from its arrival on."""

    request: Request
    admitted: float = math.nan
    first: float = math.nan
    last: float = math.nan
    tokens: int = 0
    preemptions: int = 0


class Books(Observer):
    """Tells of every answer when it is over, and keeps nothing of it but a count.

    Args:
      served: called with each.

    Attributes:
      ends: answers that are over, by reason.
      drawn: tokens that answers were given.
      preemptions: times an answer lost its memory.
    """

    def __init__(self, served: Callable[[Served], None]):
        self.ends: Counter[str] = Counter()
        self.drawn = self.preemptions = 0
        self._served = served
        self._live: dict[int, _Live] = {}
        self._united: set[int] = set()  # requests whose samples have not split yet

    @property
    def open(self) -> int:
        """Answers that are not over."""
        return len(self._live)

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        live = {id: _Live(request) for id in range(request.id, request.id + request.samples)}
        if refused is not None:
            for id, row in live.items():
                self._leave(id, row, REFUSED, now)
            return
        self._live |= live
        if request.samples > 1:
            self._united.add(request.id)

    def cancelled(self, state: State, id: int, now: float) -> None:
        """A sample can't be cancelled by itself before it has split; its request can, and takes all with it."""
        if id in self._live and (id in self._united or self._live[id].request.id not in self._united):
            self._lose(id, CANCELLED, now)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if plan.idle:
            return
        for id in plan.admitted:
            if math.isnan(self._live[id].admitted):
                for each in self._family(id):
                    self._live[each].admitted = now
        for id in plan.preempted:
            self._live[id].preemptions += 1
            self.preemptions += 1
        for id in plan.expired:
            self._lose(id, EXPIRED, now)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        live = self._live
        for id, tokens in zip(plan.ids, outcome.tokens, strict=True):
            if tokens and (row := live.get(id)) is not None:  # else it was cancelled, or had ended when the plan was made
                if not row.tokens:
                    row.first = now
                row.tokens += len(tokens)
                row.last = now
                self.drawn += len(tokens)
        if plan.forking:
            self._united.difference_update(plan.forking)
        for end in ends:
            self._leave(end.id, live.pop(end.id), end.reason, now)

    def _family(self, id: int) -> range:
        """A row, and the samples that are still to split from it."""
        return range(id, id + (self._live[id].request.samples if id in self._united else 1))

    def _lose(self, id: int, reason: str, now: float) -> None:
        family = self._family(id)
        self._united.discard(id)
        for each in family:
            self._leave(each, self._live.pop(each), reason, now)

    def _leave(self, id: int, row: _Live, reason: str, now: float) -> None:
        self.ends[reason] += 1
        request = row.request
        times = (request.arrival, row.admitted, row.first, row.last, now)
        self._served(Served(id, *times, len(request.prompt), row.tokens, row.preemptions, reason))
