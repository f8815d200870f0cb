"""Every request with the time of every token, from what a scheduler is seen to do: the same for an engine and for a simulation."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from jaxserve.load.served import Books, Served
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Ids, Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from models.errors import UserError


@dataclasses.dataclass(slots=True)
class _Row:
    """An answer that waits or runs. Times are s on the scheduler's clock."""

    request: Request
    submitted: float
    ready: float
    started: float = math.nan
    cached: int = 0
    preemptions: int = 0
    tokens: list[float] = dataclasses.field(default_factory=list)


class Recorder(Observer):
    """Takes down a `RequestRecord` for every answer. It has no client, so what was due was sent, and a token that is known has arrived.

    Args:
      ended: called with each record when the answer is over; by default they are kept, for `records`. Memory then grows with every token.

    Attributes:
      steps: what the steps took, of an engine that ran them on a device.
    """

    def __init__(self, ended: Callable[[RequestRecord], None] | None = None):
        self._over: list[RequestRecord] = []
        self._ended = ended or self._over.append
        self._books = Books(self._leave)
        self._rows: dict[int, _Row] = {}
        self._flying: list[deque[Ids]] = []  # of each worker, who starts with each plan that is under way
        self._forms, self._forming = False, math.nan
        self._now = 0.0
        self.steps: list[StepRecord] = []

    def records(self) -> list[RequestRecord]:
        """Of all answers that are kept, by id; those that still wait or run as they stand, "unfinished"."""
        open = [self._record(id, row, self._now, UNFINISHED) for id, row in self._rows.items()]
        return sorted(self._over + open, key=lambda record: record.id)

    def started(self, policy: Policy, state: State) -> None:
        self._forms = isinstance(policy, Dynamic)
        self._flying = [deque() for _ in state.workers]

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        self._now = now
        for id in range(request.id, request.id + request.samples):
            self._rows[id] = _Row(request, now, math.nan if self._forms else now)
        self._books.submitted(state, request, refused, now)

    def cancelled(self, state: State, id: int, now: float) -> None:
        self._now = now
        self._books.cancelled(state, id, now)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        self._now = now
        if not plan.ids:
            free = not any(worker.rows or worker.flying for worker in after.workers)
            if self._forms and free and after.waiting and math.isnan(self._forming):
                self._forming = now
        else:
            self._begin(plan, now)
        for id in plan.preempted:
            self._rows[id].preemptions += 1
        self._books.planned(before, plan, after, now)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self._now = now
        flying = self._flying[plan.worker]
        flying.popleft()
        if flying:  # its worker is free for it as of now
            self._start(flying[0], now)
        for id, tokens in zip(plan.ids, outcome.tokens, strict=True):
            if tokens and (row := self._rows.get(id)) is not None:
                row.tokens += [now] * len(tokens)
        self._books.updated(before, plan, outcome, after, ends, now)

    def stepped(self, record: StepRecord) -> None:
        self.steps.append(record)

    def _begin(self, plan: Plan, now: float) -> None:
        """A plan was made; who is in one for the first time starts with it, now or when the plan before has run."""
        new: list[int] = []
        if plan.admitted:
            found = dict(zip(plan.ids, plan.starts, strict=True))
            for id in plan.admitted:
                row = self._rows[id]
                if not row.tokens and not row.preemptions:  # else it comes back
                    family = range(id, row.request.id + row.request.samples)
                    new += family
                    for each in family:
                        self._rows[each].cached = found[id]
                        self._rows[each].ready = self._gathered(row, now)
            self._forming = math.nan
        flying = self._flying[plan.worker]
        if not flying:
            self._start(tuple(new), now)
        flying.append(tuple(new))

    def _gathered(self, row: _Row, now: float) -> float:
        """When it would have been ready, had all its waiting for company come first: a worker was free, and the batch still formed."""
        if not self._forms or math.isnan(self._forming):
            return row.submitted
        return min(row.submitted + (now - self._forming), now)

    def _start(self, ids: Ids, now: float) -> None:
        for id in ids:
            if id in self._rows:  # else its client has gone
                self._rows[id].started = now

    def _leave(self, answer: Served) -> None:
        self._ended(self._record(answer.id, self._rows.pop(answer.id), answer.end, answer.reason))

    @staticmethod
    def _record(id: int, row: _Row, end: float, reason: str) -> RequestRecord:
        request = row.request
        return RequestRecord(
            id=id,
            intended=request.arrival,
            sent=request.arrival,
            submitted=row.submitted,
            ready=row.ready,
            started=row.started,
            prefilled=row.tokens[0] if row.tokens else math.nan,
            tokens=tuple(row.tokens),
            end=end,
            prompt=len(request.prompt),
            output=len(row.tokens),
            cached=row.cached,
            preemptions=row.preemptions,
            reason=reason,
        )


# What became of one request, as its client saw it: the one form in which measured, replayed and simulated runs are judged.

FAILED, UNFINISHED = "failed", "unfinished"  # beside the reasons that answers and `jaxserve.load.served` know
ANSWERED = ("stop", "length")  # reasons of an answer that came to its end
# Who counted the tokens of an answer: the engine (or its simulation), the server in `usage`, a tokenizer its text, or nobody: then they
# are the chunks that it came in, each of which may hold several.
ENGINE, USAGE, TOKENIZER, CHUNKS = "engine", "usage", "tokenizer", "chunks"


class RequestRecord(NamedTuple):
    """One request. All times are s on one clock, counted from the start of the run; nan where nobody could know.

    Attributes:
      id: of the request in its run.
      intended: when it was due. Every latency counts from here (open loop), so that a late client can't hide a slow server.
      sent: when the client handed it over; sent - intended is the client's own delay. In a closed loop both are the same moment.
      submitted: when the scheduler had it, tokenised and checked.
      ready: when it no longer waited for others to form a batch with; equal to `submitted` under a policy that forms none.
      started: when the first step that runs its prompt began, or would have begun: its memory was given and its worker was free.
      prefilled: when the engine knew its first token.
      tokens: when each token of its answer was at the client.
      end: when the client knew that it was over, however it ended.
      prompt, output: tokens; `output` may exceed len(tokens) where a server sends several at a time, or some without a text.
      cached: prompt tokens whose KV was there already; 0 where nothing is known of it.
      preemptions: how often it lost its memory.
      reason: "stop", "length"; "cancelled", "expired", "refused" (the server would not take it); "failed" (an error, see `error`);
        "unfinished" (the run was over first).
      error: what was said, for people; "" where nothing was.
      counted: who counted `output`: ENGINE, USAGE, TOKENIZER or CHUNKS.
    """

    id: int
    intended: float
    sent: float
    submitted: float
    ready: float
    started: float
    prefilled: float
    tokens: tuple[float, ...]
    end: float
    prompt: int
    output: int
    cached: int = 0
    preemptions: int = 0
    reason: str = "length"
    error: str = ""
    counted: str = ENGINE

    @property
    def answered(self) -> bool:
        """Whether its answer came to its own end."""
        return self.reason in ANSWERED

    @property
    def ttft(self) -> float:
        """s from the intended arrival to the first token; nan where there was none."""
        return self.tokens[0] - self.intended if self.tokens else math.nan

    @property
    def tpot(self) -> float:
        """s a token after the first; nan for an answer of fewer than two tokens."""
        return (self.tokens[-1] - self.tokens[0]) / (self.output - 1) if self.output > 1 and self.tokens else math.nan

    @property
    def e2e(self) -> float:
        """s from the intended arrival to the last token; nan where there was none."""
        return self.tokens[-1] - self.intended if self.tokens else math.nan

    @property
    def itl(self) -> tuple[float, ...]:
        """s between its tokens, one for each gap."""
        return tuple(b - a for a, b in zip(self.tokens, self.tokens[1:], strict=False))
