"""The lines of a step log: what each holds, and how a line of text becomes one of them.

A log is JSONL. Its first line says what was scheduled by whom (`Header`); the others follow in the order in which things happened.
Times are s on the clock that the header names. What a line leaves out has its default.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from jaxserve.scheduling.codec import decode
from jaxserve.scheduling.outcome import End, Outcome
from jaxserve.scheduling.plan import HandOff, Ids, Plan
from jaxserve.scheduling.request import Request
from jaxserve.steprecord import StepRecord
from models.errors import UserError
from models.json_text import parse_json

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
    tokens: Ids | None = None
    refused: str | None = None

    @property
    def request(self) -> Request:
        """Raises UserError for one that could not be made."""
        prompt = range(self.prompt) if self.tokens is None else self.tokens
        if len(prompt) != self.prompt:
            raise UserError(f"request {self.id} has a prompt of {self.prompt} tokens, but {len(prompt)} are given")
        return Request(self.id, prompt, self.limit, self.arrival, self.priority, self.deadline, self.samples, self.reuse)


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
        same = {
            name: getattr(self, name)
            for name in ("step", "worker", "ids", "starts", "counts", "draws", "steps", "copies", "slots", "final", "forking")
        }
        return Plan(
            **same,
            tables=tuple(tables.get(id, ()) for id in self.ids),
            moved=tuple((row, first) for row, first, _ in self.moved),
            admitted=self.admitted,
            preempted=self.preempted,
            expired=self.expired,
            hand_offs=self.hand_offs,
            wake=self.wake,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Folded:
    """A plan was run.

    Attributes:
      drawn: tokens of all rows.
      tokens: of each row of the plan, where memory looks at tokens.
      counts: how many of each row, where it doesn't.
      ended, drafts: as in `Outcome`.
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

    @property
    def outcome(self) -> Outcome:
        """With tokens of 0 where only their number was written down."""
        tokens = tuple((0,) * count for count in self.counts or ()) if self.tokens is None else self.tokens
        return Outcome(tokens, self.ended, self.drafts)


Event: TypeAlias = Submitted | Cancelled | Planned | Folded | StepRecord
EVENTS: Mapping[str, type] = {kind.event: kind for kind in (Submitted, Cancelled, Planned, Folded)} | {"stepped": StepRecord}


def header_of(line: bytes) -> Header:
    """The first line of a log.

    Raises:
      UserError: it isn't one, or one of another format.
    """
    plain = _object(line)
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
    name = plain.pop("event", None)
    if not isinstance(name, str) or name not in EVENTS:
        raise UserError(f"the event is {name!r}; there are {', '.join(EVENTS)}")
    return decode(EVENTS[name], plain, name)


def _object(line: bytes) -> dict[str, Any]:
    plain = parse_json(line)
    if not isinstance(plain, dict):
        raise UserError(f"it is no JSON object: {line[:60]!r}")
    return plain
