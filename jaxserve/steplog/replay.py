"""A step log is run again, without a model: the scheduler is told what it was told then, and must decide what it decided then.

Every field of every line is compared with what it is now, but for those that `stepevents.GIVEN` names; and the checks of the lines say
whether any of them was changed, or is missing, since it was written.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxserve.scheduling.names import memory_of, policy_of
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Ids, Plan
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.steplog.events import (
    GIVEN,
    Cancelled,
    Checks,
    Closed,
    Event,
    Folded,
    Header,
    Planned,
    Submitted,
    event_of,
    header_of,
    name_of,
)
from models.errors import UserError
from models.files.reading import read_lines


class Difference(NamedTuple):
    """The first place where the run did not repeat itself."""

    line: int  # of the log, from 1
    what: str
    logged: str
    replayed: str


class Replay(NamedTuple):
    """How it went.

    Attributes:
      plans: that were compared and found equal.
      difference: None where all that was worked out again is as it was.
      cut: number of the last line, if it is not complete and was left out.
      lines: how many there were of each event, up to the difference.
      changed: numbers of lines that are not as they were written, or before which lines are missing, doubled or out of place; None
        where the log has no checks, as those of older versions.
      closed: the log ends with the line that says so.
      flying: serial numbers of plans whose outcome the log does not tell.
      unfinished: rows that still waited or ran at its end.
      untold: number of the last step, if its times are missing although those of the others are there.
    """

    header: Header
    plans: int
    difference: Difference | None
    cut: int | None
    lines: Mapping[str, int]
    changed: tuple[int, ...] | None
    closed: bool
    flying: tuple[int, ...]
    unfinished: int
    untold: int | None

    @property
    def equal(self) -> bool:
        """Nothing differs, and no line was changed, as far as the log has checks."""
        return self.difference is None and not self.changed


def replay(path: Path, watch: Observer, read: Callable[[int], None] = lambda size: None, own: str | None = None) -> Replay:
    """Replay a log up to its end or to the first difference.

    Args:
      path: of the log.
      watch: sees the run as it would have seen the first one.
      read: called with the bytes of each line.
      own: MODULE:NAME of a policy that isn't ours and whose code may run.

    Raises:
      UserError: the file can't be read, has another format, or a line of it makes no sense; the message says which.
    """
    checks = Checks()
    lines = _lines(path, read, checks)
    number, header = next(lines)
    assert isinstance(header, Header)
    with _place(path, number):
        replay = _Replay(header, watch, own)
    counts, difference, cut = Counter({Header.event: 1}), None, None
    for number, event in lines:
        if event is None:
            cut = number
            break
        assert not isinstance(event, Header)
        with _place(path, number):
            found = replay.take(event)
        counts[name_of(event)] += 1
        if found is not None:
            difference = Difference(number, *found)
            break
    return Replay(
        header,
        counts[Planned.event] - (difference is not None and isinstance(event, Planned)),
        difference,
        cut,
        counts,
        None if checks.changed is None else tuple(checks.changed),
        replay.closed,
        *replay.left,
    )


def trusted(path: Path, watch: Observer, read: Callable[[int], None] = lambda size: None, own: str | None = None) -> Replay:
    """The same, for whoever is to go on from what the log says.

    Raises:
      UserError: it can't be replayed, something differs, or a line was changed.
    """
    found = replay(path, watch, read, own)
    if found.equal:
        return found
    where, what = (
        (found.difference.line, f"{found.difference.what} differs when it is run again")
        if found.difference
        else ((found.changed or (0,))[0], "it is not as it was written, or does not follow on the line before")
    )
    raise UserError(f"line {where} of {path}: {what}, so it can't be used; python -m jaxserve.replay says how")


class _Replay(Observer):
    """A scheduler that is told the lines of a log. It watches itself, to see plans with nothing to do, too."""

    def __init__(self, header: Header, watch: Observer, own: str | None):
        self._watch, self._tables = watch, dict[int, Ids]()
        state = State.of(*map(memory_of, header.memories))
        self._remembers = state.workers[0].memory.remembers
        self._plan = Plan(0)  # the last one
        self._line: Planned | Folded | None = None  # what the log would say of what was planned or folded last
        self._ran = dict[int, Planned]()  # by step, until it is folded
        self._step: StepRecord | None = None  # that was folded last, until its times come
        self._timed: bool | None = None  # whether the log tells times; None until that can be known
        self.closed = False
        self._scheduler = Scheduler(policy_of(header.policy, own), state, Observers(self, watch))

    @property
    def left(self) -> tuple[tuple[int, ...], int, int | None]:
        """(plans under way, rows unfinished, the step without times) as things stand."""
        state = self._scheduler.state
        flying = tuple(plan.step for worker in state.workers for plan in worker.flying)
        untold = self._step.step if self._step and self._timed else None
        return flying, len(state.waiting) + sum(1 for _ in state.rows), untold

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        self._plan = plan
        self._line = line = Planned.of(before, plan, after, now)
        if plan.ids and line:
            self._ran[plan.step] = line

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self._line = Folded.of(plan, outcome, ends, now, remembers=self._remembers)
        worker, line = before.workers[plan.worker], self._ran.pop(plan.step)
        drawn = sum(len(got) for id, got in zip(plan.ids, outcome.tokens, strict=True) if id in worker.rows)
        counted = (line.rows, 0, line.prefill, line.decode, line.draft, drawn, worker.memory.in_use)
        self._step = StepRecord(plan.step, plan.worker, plan.digest, (), *counted, None, 0.0, 0.0, now)

    def take(self, event: Event) -> tuple[str, str, str] | None:
        """One line: what is different then and now, if anything is. Raises UserError for what can't have happened."""
        if self.closed:
            return "the end of the log", f"a line {name_of(event)} follows", "no line does"
        if isinstance(event, StepRecord):
            return self._stepped(event)
        if self._step is not None:
            if self._timed:
                return f"step {self._step.step}", "nothing is told of its times", "they follow on its outcome"
            self._timed, self._step = False, None
        match event:
            case Submitted():
                return self._submitted(event)
            case Cancelled():
                self._scheduler.cancel(event.id, event.now)
            case Planned():
                return self._planned(event)
            case Folded():
                return self._folded(event)
            case Closed():
                self.closed = True
        return None

    def _submitted(self, event: Submitted) -> tuple[str, str, str] | None:
        request, refused = event.request, None
        try:
            self._scheduler.submit(request, event.now)
        except UserError as error:
            refused = str(error)
        if refused != event.refused:
            return f"request {event.id}", event.refused or "accepted", refused or "accepted"
        return None

    def _planned(self, event: Planned) -> tuple[str, str, str] | None:
        logged = event.plan(self._tables)
        self._scheduler.plan(event.now)
        if event.digest == logged.digest == self._plan.digest:
            return _compared(f"plan {event.step}", event, self._line)
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
            counts, most = event.counts or (0,), max(flying[0].draws)
            if max(counts) > most:  # before as many tokens are made up
                raise ValueError(
                    f"plan {event.step} draws up to {most} tokens for a row; an outcome of {max(counts)} does not fit it"
                )
            self._scheduler.update(flying[0], event.outcome, event.now)
        except ValueError as error:
            raise UserError(f"the outcome of step {event.step} can't be: {error}") from None
        return _compared(f"what step {event.step} came to", event, self._line)

    def _stepped(self, event: StepRecord) -> tuple[str, str, str] | None:
        step, self._step = self._step, None
        if step is None or self._timed is False:
            return (
                f"what step {event.step} took",
                "its times are told",
                "no step ended just before" if step is None else "no other's are",
            )
        self._timed = True
        self._watch.stepped(event)
        given = {name: getattr(event, name) for name in GIVEN["stepped"]}
        return _compared(f"what step {event.step} took", event, step._replace(**given))


def _compared(what: str, logged: Any, replayed: Any) -> tuple[str, str, str] | None:
    """The fields that differ."""
    if logged == replayed:
        return None
    if replayed is None:
        return what, "it is told", "nothing was decided and nothing changed, so nothing is to be told"
    names = getattr(logged, "_fields", None) or logged.__slots__
    odd = [name for name in names if getattr(logged, name) != getattr(replayed, name)]
    said, now = ("; ".join(f"{name} {getattr(one, name)}" for name in odd) for one in (logged, replayed))
    return what, said, now


def _lines(path: Path, read: Callable[[int], None], checks: Checks) -> Iterator[tuple[int, Header | Event | None]]:
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
        if event is not None:
            checks.read(number, line)
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
    except (struct.error, OverflowError):  # of a digest, of the length of a prompt
        raise UserError(f"line {number} of {path}: a number in it has more than 64 bits, and none could be so large") from None
