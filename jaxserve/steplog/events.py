"""The lines of a step log: what each holds, how it is made of what happened, and how a line of text becomes one again.

A log is JSONL. Its first line says what was scheduled by whom (`Header`); the others follow in the order in which things happened, and
the last one is `Closed` where the run ended in good order. Times are s on the clock that the header names. What a line leaves out has
its default. The last field of every line, `check`, is a hash of the line and of the check before it; older logs have none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

from jaxserve.scheduling.codec import decode, encode
from jaxserve.scheduling.plan import HandOff, Ids, Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.scheduling.token_counts import TokenCounts
from models.errors import UserError
from models.files.json_text import parse_json

FORMAT = 1

Clock: TypeAlias = Literal["monotonic", "virtual"]


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """The first line.

    Attributes:
      format: of the log; another one is not read.
      jaxserve: version of the package that wrote it.
      clock: of all times in it: one of this machine's, whose zero means nothing, or that of a simulation.
      policy, memories: as `scheduling.names` writes them; one memory a worker, all empty.
    """

    event: ClassVar[str] = "log"

    format: int
    jaxserve: str
    clock: Clock
    policy: Any
    memories: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Submitted:
    """A request came in.

    Attributes:
      prompt: its length.
      seed: of what it draws; None where nothing is drawn.
      tokens: of the prompt, where memory looks at tokens.
      refused: why, where it was.
    """

    event: ClassVar[str] = "submitted"

    now: float
    id: int
    prompt: int
    limit: int
    arrival: float = 0.0
    priority: int = 1
    deadline: float = math.inf
    samples: int = 1
    reuse: bool = True
    seed: int | None = None
    tokens: Ids | None = None
    refused: str | None = None

    @classmethod
    def of(cls, request: Request, refused: UserError | None, now: float, *, remembers: bool) -> Self:
        """remembers: whether memory looks at tokens."""
        r, prompt = request, tuple(request.prompt) if remembers else None
        return cls(
            now, r.id, len(r.prompt), r.limit, r.arrival, r.priority, r.deadline, r.samples, r.reuse, r.seed, prompt,
            None if refused is None else str(refused),
        )  # fmt: skip

    @property
    def request(self) -> Request:
        """Raises UserError for one that could not be made."""
        prompt = range(self.prompt) if self.tokens is None else self.tokens
        if len(prompt) != self.prompt:
            raise UserError(f"request {self.id} has a prompt of {self.prompt} tokens, but {len(prompt)} are given")
        return Request(
            self.id, prompt, self.limit, self.arrival, self.priority, self.deadline, self.samples, self.reuse, self.seed
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Cancelled:
    """A client went away."""

    event: ClassVar[str] = "cancelled"

    now: float
    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """The policy was asked, and had something to do or to report, or something has changed.

    Attributes:
      digest: of the plan.
      rows, prefill, decode, draft: rows of the plan, and their tokens by kind.
      pages: of the worker's memory that are in use, or slots.
      moved: (row of the plan, first entry, the table from there on).
      The others are those of `Plan`.
    """

    event: ClassVar[str] = "planned"

    now: float
    digest: str
    step: int
    worker: int
    rows: int
    prefill: int
    decode: int
    draft: int
    pages: int
    slots: int
    ids: Ids = ()
    starts: Ids = ()
    counts: Ids = ()
    draws: Ids = ()
    moved: tuple[tuple[int, int, Ids], ...] = ()
    steps: int = 1
    copies: tuple[tuple[int, int], ...] = ()
    final: Ids = ()
    forking: Ids = ()
    admitted: Ids = ()
    preempted: Ids = ()
    expired: Ids = ()
    hand_offs: tuple[HandOff, ...] = ()
    wake: float = math.inf

    @classmethod
    def of(cls, before: State, plan: Plan, after: State, now: float) -> Self | None:
        """None where there was nothing to do or to report, and nothing has changed: a replay that is not asked then is none the wiser."""
        if plan.idle and before == after:
            return None
        kinds, pages = TokenCounts.of(plan, after), after.workers[plan.worker].memory.in_use
        moved = tuple([(row, first, plan.tables[row][first:]) for row, first in plan.moved])
        same = {name: getattr(plan, name) for name in _SAME}
        return cls(now=now, digest=plan.digest, rows=len(plan.ids), **kinds._asdict(), pages=pages, moved=moved, **same)

    def __post_init__(self) -> None:
        """Raises UserError for columns of different lengths."""
        columns = {len(column) for column in (self.ids, self.starts, self.counts, self.draws)}
        if columns != {self.rows} or any(not 0 <= row < self.rows for row, _, _ in self.moved):
            raise UserError(
                f"a plan of {self.rows} rows has columns of {sorted(columns)} and tables of {[m[0] for m in self.moved]}"
            )

    def plan(self, tables: dict[int, Ids]) -> Plan:
        """The plan that was logged. `tables` are those of all rows at the plan before, and become those at this one."""
        for row, first, table in self.moved:
            tables[self.ids[row]] = tables.get(self.ids[row], ())[:first] + table
        return Plan(
            **{name: getattr(self, name) for name in _SAME},
            tables=tuple(tables.get(id, ()) for id in self.ids),
            moved=tuple((row, first) for row, first, _ in self.moved),
        )


# Fields that a plan and its line have in common.
_SAME = ("step", "worker", "ids", "starts", "counts", "draws", "steps", "copies", "slots", "final", "forking", "admitted",
         "preempted", "expired", "hand_offs", "wake")  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Folded:
    """A plan was run.

    Attributes:
      drawn: tokens of all rows.
      tokens: of each row of the plan, where memory looks at tokens.
      counts: how many of each row, where it doesn't.
      ended, drafts: as in `StepResult`.
      ends: (id, why) of the rows that it ended.
    """

    event: ClassVar[str] = "folded"

    now: float
    step: int
    worker: int
    drawn: int
    tokens: tuple[Ids, ...] | None = None
    counts: Ids | None = None
    ended: Mapping[int, str] = dataclasses.field(default_factory=dict)
    drafts: Mapping[int, int] = dataclasses.field(default_factory=dict)
    ends: tuple[End, ...] = ()

    @classmethod
    def of(cls, plan: Plan, outcome: StepResult, ends: tuple[End, ...], now: float, *, remembers: bool) -> Self:
        """remembers: whether memory looks at tokens."""
        counts = tuple(map(len, outcome.tokens))
        tokens, lengths = (outcome.tokens, None) if remembers else (None, counts)
        return cls(now, plan.step, plan.worker, sum(counts), tokens, lengths, outcome.ended, outcome.drafts, ends)

    @property
    def outcome(self) -> StepResult:
        """With tokens of 0 where only their number was written down."""
        tokens = tuple((0,) * count for count in self.counts or ()) if self.tokens is None else self.tokens
        return StepResult(tokens, self.ended, self.drafts)


@dataclasses.dataclass(frozen=True, slots=True)
class Closed:
    """The last line: whoever wrote the log has closed it, so that nothing is missing at its end."""

    event: ClassVar[str] = "closed"


Event: TypeAlias = Submitted | Cancelled | Planned | Folded | StepRecord | Closed
EVENTS: Mapping[str, type] = {kind.event: kind for kind in (Submitted, Cancelled, Planned, Folded)} | {
    "stepped": StepRecord,
    Closed.event: Closed,
}

# What a replay takes as given, by event: what came from outside, and what a device or a clock said. All other fields it works out again.
GIVEN: Mapping[str, Sequence[str]] = {
    Header.event: ("jaxserve", "clock", "policy", "memories"),
    Submitted.event: (
        "now", "id", "prompt", "limit", "arrival", "priority", "deadline", "samples", "reuse", "seed", "tokens",
    ),
    Cancelled.event: ("now", "id"),
    Planned.event: ("now",),
    Folded.event: ("now", "tokens", "counts", "ended", "drafts"),
    "stepped": ("programs", "padded", "predicted", "measured", "host"),
}  # fmt: skip

# Fields that a line leaves out where they say nothing.
_BRIEF = {
    Submitted.event: ("seed", "tokens", "refused"),
    Planned.event: ("moved", "steps", "copies", "final", "forking", "admitted", "preempted", "expired", "hand_offs", "wake"),
    Folded.event: ("tokens", "counts", "ended", "drafts", "ends"),
}
_NOTHING: tuple[Any, ...] = (None, (), {})


def name_of(event: Header | Event) -> str:
    """What its line calls it."""
    return "stepped" if isinstance(event, StepRecord) else event.event


def plain_of(event: Header | Event) -> dict[str, Any]:
    """The fields of a line, for JSON, but for its check."""
    name = name_of(event)
    fields = event._fields if isinstance(event, StepRecord) else event.__slots__
    brief, found = _BRIEF.get(name, ()), dict[str, Any](event=name)
    for field in fields:
        value = getattr(event, field)
        if field not in brief or not (value in _NOTHING or (field == "steps" and value == 1) or value == math.inf):
            found[field] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    """What JSON would write otherwise than it is read. The rest stays as it is, for prompts are long and a step is short."""
    if isinstance(value, (float, Mapping)) or (isinstance(value, tuple) and value and hasattr(value[0], "_fields")):
        return encode(value)
    return value


def check_of(before: str, line: str) -> str:
    """The check of a line, 16 hex digits.

    Args:
      before: that of the line before; empty before the first.
      line: its JSON without the check.
    """
    return hashlib.blake2b(before.encode() + line.encode(), digest_size=8).hexdigest()


class Checks:
    """Whether the lines of a log are those that were written, in that order.

    Attributes:
      changed: numbers of lines that aren't, or before which lines are missing; None where the log has no checks.
    """

    _ENDS = re.compile(rb'(.*),"check":"([0-9a-f]{16})"\}\r?\n?', re.DOTALL)

    def __init__(self) -> None:
        self.changed: list[int] | None = None
        self._before = ""

    def read(self, number: int, line: bytes) -> None:
        """The next line, with its number from 1."""
        found = self._ENDS.fullmatch(line)
        if self.changed is None:
            if not found:
                return
            self.changed = list(range(1, number))  # these have lost theirs
            right = number > 1 or self._follows(found)
        else:
            right = found is not None and self._follows(found)
        if not right:
            self.changed.append(number)
        self._before = found[2].decode() if found else ""

    def _follows(self, found: re.Match[bytes]) -> bool:
        return check_of(self._before, found[1].decode(errors="replace") + "}") == found[2].decode()


def header_of(line: bytes) -> Header:
    """The first line of a log.

    Raises:
      UserError: it isn't one, or one of another format.
    """
    plain = _object(line)
    plain.pop("check", None)
    if plain.pop("event", None) != Header.event:
        raise UserError("it is no head of a step log; give the file that an engine or a simulation wrote")
    if plain.get("format") != FORMAT:
        raise UserError(
            f"the log has format {plain.get('format')}, this version reads format {FORMAT}; replay it with the version of jaxserve "
            f"that wrote it, {plain.get('jaxserve')}"
        )
    return decode(Header, plain, Header.event)


def event_of(line: bytes) -> Event:
    """Any later line.

    Raises:
      UserError: it is no JSON, of no known kind, or a field is wrong.
    """
    plain = _object(line)
    plain.pop("check", None)
    name = plain.pop("event", None)
    if not isinstance(name, str) or name not in EVENTS:
        raise UserError(f"the event is {name!r}; there are {', '.join(EVENTS)}")
    return decode(EVENTS[name], plain, name)


def _object(line: bytes) -> dict[str, Any]:
    plain = parse_json(line)
    if not isinstance(plain, dict):
        raise UserError(f"it is no JSON object: {line[:60]!r}")
    return plain
