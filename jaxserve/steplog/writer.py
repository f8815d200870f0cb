"""Everything that a scheduler is told and decides, line by line in a file, so that a run can be read, summed up and replayed.

`jaxserve/steplog/events.py` says what the lines hold. Each is written as soon as it is known, so a crash loses at most the one
that is being written. Where the disk is full, what has happened stays so, and the next decision, of which there would be no
record, is refused. What a prompt or an answer says is written down only where memory looks at tokens, for only there do plans
depend on it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self, TextIO

from jaxserve.scheduling.names import memory_json, memory_of, policy_json
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.steplog.events import (
    FORMAT,
    Cancelled,
    Clock,
    Closed,
    Event,
    Folded,
    Header,
    Planned,
    Submitted,
    check_of,
    plain_of,
)
from jaxserve.version import version
from models.errors import UserError


class StepLog(Observer):
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
        self._clock, self._remembers, self._begun, self._closed = clock, False, False, False
        self._check = ""  # of the last line
        self._failed: UserError | None = None
        # An engine may be given tokens as integers of NumPy, which JSON doesn't know.
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False, default=int).encode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the last line; close the file, if it was opened here."""
        if self._begun and not self._closed:
            self._closed = True
            self._write(Closed())
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
        self._decide(header)

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        self._decide(Submitted.of(request, refused, now, remembers=self._remembers))

    def cancelled(self, state: State, id: int, now: float) -> None:
        self._write(Cancelled(now, id))

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if event := Planned.of(before, plan, after, now):
            self._decide(event)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self._write(Folded.of(plan, outcome, ends, now, remembers=self._remembers))

    def stepped(self, record: StepRecord) -> None:
        self._write(record)

    def _decide(self, event: Header | Event) -> None:
        """Write down what nobody has acted on yet. Raises UserError where that can't be done, or could not be done before."""
        self._write(event)
        if self._failed:
            raise self._failed

    def _write(self, event: Header | Event) -> None:
        """Write down what has happened. After a line that could not be written none is: the log ends there."""
        if self._failed:
            return
        line = self._encode(plain_of(event))
        self._check = check_of(self._check, line)
        try:
            self._file.write(f'{line[:-1]},"check":"{self._check}"}}\n')
            self._file.flush()
        except OSError as error:
            self._failed = UserError(f"the step log can't be written further: {error.strerror}; make room, or run without one")
