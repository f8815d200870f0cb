"""Everything that a scheduler is told and decides, line by line in a file, so that a run can be read, summed up and replayed.

`jaxserve/stepevents.py` says what the lines hold. Each is written as soon as it is known, so a crash loses at most the one that is being
written. Where the disk is full, what has happened stays so, and the next decision, of which there would be no record, is refused. What a
prompt or an answer says is written down only where memory looks at tokens, for only there do plans depend on it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Self, TextIO

from jaxserve.scheduling.codec import encode
from jaxserve.scheduling.kinds import Kinds
from jaxserve.scheduling.names import memory_json, memory_of, policy_json
from jaxserve.scheduling.outcome import End, Outcome
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.watch import Watch
from jaxserve.stepevents import FORMAT, Cancelled, Clock, Folded, Header, Planned, Submitted
from jaxserve.steprecord import StepRecord
from jaxserve.version import version
from models.errors import UserError


class StepLog(Watch):
    """The log of one scheduler. A context manager: at its end the file is closed, if it was opened here.

    Args:
      file: where to write; a path is overwritten.
      clock: of the times that it is told.

    Raises:
      UserError: the path can't be written.
    """

    def __init__(self, file: str | Path | TextIO, clock: Clock = "monotonic"):
        self._own = isinstance(file, (str, Path))
        try:
            self._file = open(file, "w", encoding="utf-8") if isinstance(file, (str, Path)) else file
        except OSError as error:
            raise UserError(f"the step log {file} can't be written: {error.strerror}") from None
        self._clock, self._remembers, self._begun = clock, False, False
        self._failed: UserError | None = None
        # An engine may be given tokens as integers of NumPy, which JSON doesn't know.
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False, default=int).encode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._own:
            self._file.close()

    def started(self, policy: Policy, state: State) -> None:
        """Raises UserError where the run could not be replayed: a policy without a name, a state that isn't empty, or a second run."""
        if self._begun:
            raise UserError("this step log belongs to another scheduler already; make one for each")
        memories = [memory_json(worker.memory) for worker in state.workers]
        if state != State.of(*map(memory_of, memories)):
            raise UserError("a step log begins with a scheduler that has done nothing yet; this one has a past")
        header = Header(FORMAT, version(), self._clock, policy_json(policy), tuple(memories))
        self._begun, self._remembers = True, state.workers[0].memory.remembers
        self._decide(Header.event, **encode(header))

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        prompt = request.prompt
        more: dict[str, Any] = {"tokens": list(prompt)} if self._remembers else {}
        if refused is not None:
            more["refused"] = str(refused)
        self._decide(
            Submitted.event,
            now=now,
            id=request.id,
            prompt=len(prompt),
            limit=request.limit,
            arrival=request.arrival,
            priority=request.priority,
            deadline=encode(request.deadline),
            samples=request.samples,
            reuse=request.reuse,
            **more,
        )

    def cancelled(self, state: State, id: int, now: float) -> None:
        self._write(Cancelled.event, now=now, id=id)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if plan.idle and before == after:
            return  # a replay that is not asked at this time is none the wiser
        prefill, decode, draft = Kinds.of(plan, after)
        more: dict[str, Any] = {}
        if plan.moved:
            more["moved"] = [(row, first, plan.tables[row][first:]) for row, first in plan.moved]
        if plan.steps > 1:
            more["steps"] = plan.steps
        for name in ("copies", "final", "forking", "admitted", "preempted", "expired"):
            if value := getattr(plan, name):
                more[name] = value
        if plan.hand_offs:
            more["hand_offs"] = encode(plan.hand_offs)
        if plan.wake != math.inf:
            more["wake"] = plan.wake
        self._decide(
            Planned.event,
            now=now,
            digest=plan.digest,
            step=plan.step,
            worker=plan.worker,
            rows=len(plan.ids),
            prefill=prefill,
            decode=decode,
            draft=draft,
            pages=after.workers[plan.worker].memory.in_use,
            slots=plan.slots,
            ids=plan.ids,
            starts=plan.starts,
            counts=plan.counts,
            draws=plan.draws,
            **more,
        )

    def folded(self, before: State, plan: Plan, outcome: Outcome, after: State, ends: tuple[End, ...], now: float) -> None:
        counts = list(map(len, outcome.tokens))
        more: dict[str, Any] = {"tokens": outcome.tokens} if self._remembers else {"counts": counts}
        for name, value in (("ended", outcome.ended), ("drafts", outcome.drafts)):
            if value:
                more[name] = encode(value)
        if ends:
            more["ends"] = encode(ends)
        self._write(Folded.event, now=now, step=plan.step, worker=plan.worker, drawn=sum(counts), **more)

    def stepped(self, record: StepRecord) -> None:
        self._write("stepped", **record._asdict())

    def _decide(self, event: str, **fields: Any) -> None:
        """Write down what nobody has acted on yet. Raises UserError where that can't be done, or could not be done before."""
        self._write(event, **fields)
        if self._failed:
            raise self._failed

    def _write(self, event: str, **fields: Any) -> None:
        """Write down what has happened. After a line that could not be written none is: the log ends there."""
        if self._failed:
            return
        try:
            self._file.write(self._encode({"event": event, **fields}) + "\n")
            self._file.flush()
        except OSError as error:
            self._failed = UserError(f"the step log can't be written further: {error.strerror}; make room, or run without one")
