"""A step log is run again, without a model: the scheduler is told what it was told then, and must decide what it decided then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jaxserve.scheduling.names import memory_of, policy_of
from jaxserve.scheduling.plan import Ids, Plan
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.watch import Watch, Watches
from jaxserve.stepevents import Cancelled, Event, Folded, Header, Planned, Submitted, event_of, header_of
from jaxserve.steprecord import StepRecord
from models.errors import UserError
from models.files import read_lines


class Difference(NamedTuple):
    """The first place where the run did not repeat itself."""

    line: int  # of the log, from 1
    what: str
    logged: str
    replayed: str


class Rerun(NamedTuple):
    """How it went.

    Attributes:
      plans: that were compared and found equal.
      cut: number of the last line, if it is not complete and was left out.
    """

    header: Header
    plans: int
    difference: Difference | None
    cut: int | None


def rerun(path: Path, watch: Watch, read: Callable[[int], None] = lambda size: None) -> Rerun:
    """Replay a log up to its end or to the first difference.

    Args:
      path: of the log.
      watch: sees the run as it would have seen the first one.
      read: called with the bytes of each line.

    Raises:
      UserError: the file can't be read, has another format, or a line of it makes no sense; the message says which.
    """
    lines = _lines(path, read)
    number, header = next(lines)
    assert isinstance(header, Header)
    with _place(path, number):
        replay = _Replay(header, watch)
    plans = 0
    for number, event in lines:
        if event is None:
            return Rerun(header, plans, None, number)
        assert not isinstance(event, Header)
        with _place(path, number):
            found = replay.take(event)
        if found is not None:
            return Rerun(header, plans, Difference(number, *found), None)
        plans += isinstance(event, Planned)
    return Rerun(header, plans, None, None)


class _Replay(Watch):
    """A scheduler that is told the lines of a log. It watches itself, to see plans with nothing to do, too."""

    def __init__(self, header: Header, watch: Watch):
        self._watch, self._plan, self._tables = watch, Plan(0), dict[int, Ids]()
        state = State.of(*map(memory_of, header.memories))
        self._scheduler = Scheduler(policy_of(header.policy), state, Watches(self, watch))

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        self._plan = plan

    def take(self, event: Event) -> tuple[str, str, str] | None:
        """One line: what is different then and now, if anything is. Raises UserError for what can't have happened."""
        match event:
            case Submitted():
                return self._submitted(event)
            case Cancelled():
                self._scheduler.cancel(event.id, event.now)
            case Planned():
                return self._planned(event)
            case Folded():
                return self._folded(event)
            case StepRecord():
                self._watch.stepped(event)
        return None

    def _submitted(self, event: Submitted) -> tuple[str, str, str] | None:
        request, refused = event.request, None
        try:
            self._scheduler.submit(request, event.now)
        except UserError as error:
            refused = str(error)
        if refused == event.refused:
            return None
        return f"request {event.id}", event.refused or "accepted", refused or "accepted"

    def _planned(self, event: Planned) -> tuple[str, str, str] | None:
        logged = event.plan(self._tables)
        self._scheduler.plan(event.now)
        if event.digest == logged.digest == self._plan.digest:
            return None
        if event.digest != logged.digest:
            was = f"digest {event.digest}, but what the line says has digest {logged.digest}, so it was changed"
        else:
            was = f"digest {event.digest}"
        return f"plan {event.step}", f"{was}\n{logged}", f"digest {self._plan.digest}\n{self._plan}"

    def _folded(self, event: Folded) -> tuple[str, str, str] | None:
        workers = self._scheduler.state.workers
        flying = workers[event.worker].flying if 0 <= event.worker < len(workers) else ()
        if not flying or flying[0].step != event.step:
            raise UserError(
                f"the outcome of step {event.step} on worker {event.worker}, where {[plan.step for plan in flying]} are under way; "
                f"a line is missing or out of place"
            )
        try:
            ends = self._scheduler.fold(flying[0], event.outcome, event.now)
        except ValueError as error:
            raise UserError(f"the outcome of step {event.step} can't be: {error}") from None
        if ends == event.ends:
            return None
        return f"what step {event.step} ended", str(event.ends), str(ends)


def _lines(path: Path, read: Callable[[int], None]) -> Iterator[tuple[int, Header | Event | None]]:
    """The lines and their numbers. None stands for a last one that is cut off."""
    number = 0
    for number, line in read_lines(path, name=f"the step log {path}", fix="give the file that an engine or a simulation wrote"):
        read(len(line))
        try:
            with _place(path, number):
                event = header_of(line) if number == 1 else event_of(line)
        except UserError:
            if number == 1 or line.endswith(b"\n"):
                raise
            event = None
        yield number, event
    if not number:
        raise UserError(f"the step log {path} is empty")


@contextlib.contextmanager
def _place(path: Path, number: int) -> Iterator[None]:
    """Errors say which line they are about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"line {number} of {path}: {error}") from None
