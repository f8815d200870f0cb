"""All that a policy knows: who waits, who runs, how far each is, and where its KV lives. Frozen values throughout.

The mappings in a state are never changed once it is made; whoever wants another makes a new one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jaxserve.kv.memory import Memory
from jaxserve.scheduling.plan import HandOff, Plan
from jaxserve.scheduling.queue import Queue
from jaxserve.scheduling.request import Request
from models.errors import UserError

NEVER = -1
NONE: Mapping = {}  # never changed, like every mapping in a state


class Row(NamedTuple):
    """One sequence: a request, or one sample of it.

    How many of its tokens are in the cache stands in `Worker.cached`. Below `goal` its prompt is being run; from then on it decodes,
    one known token ahead of the cache.
    """

    request: Request
    id: int
    goal: int  # tokens that are known when it is admitted: the prompt, and after a preemption the answer so far
    life: int  # tokens that it runs at most
    order: int = NEVER  # serial number of its admission; NEVER before the first
    table: tuple[int, ...] = ()  # where its KV lives
    room: int = 0  # tokens that it may write there without asking memory again
    forks: int = 0  # samples that split from it once its prompt is done
    preemptions: int = 0
    late: bool = False  # its time in the queue is over, and it waits on behind those that are in time
    output: tuple[int, ...] = ()  # its answer so far, but for `Worker.tails`; only where memory looks at tokens

    @property
    def ran(self) -> bool:
        """Whether it has been admitted before."""
        return self.order != NEVER

    @property
    def rank(self) -> tuple[int, bool, float]:
        """Of rows that wait, those of a lower rank go first: by priority; the late last; who ran before first, in the old order."""
        return self.request.priority, self.late, math.inf if self.order == NEVER else self.order

    @property
    def seniority(self) -> tuple[int, int]:
        """Of rows that run, those that are higher are preempted first."""
        return self.request.priority, self.order

    @property
    def width(self) -> int:
        """Places that it takes up in a batch."""
        return 1 + self.forks

    def lent(self, table: tuple[int, ...], room: int) -> Row:
        """The row with other memory. Spelled out, for `_replace` takes longer and this is done for every new page."""
        return Row(
            self.request,
            self.id,
            self.goal,
            self.life,
            self.order,
            table,
            room,
            self.forks,
            self.preemptions,
            self.late,
            self.output,
        )

    @property
    def tokens(self) -> Sequence[int]:
        """Its prompt and its answer so far."""
        return (*self.request.prompt, *self.output) if self.output else self.request.prompt

    def between(self, start: int, stop: int) -> tuple[int, ...]:
        """Its tokens from position `start` to `stop`."""
        prompt = len(self.request.prompt)
        answer = self.output[max(start - prompt, 0) : max(stop - prompt, 0)]
        return (*self.request.prompt[start:stop], *answer)


class Worker(NamedTuple):
    """One pool of KV memory and the rows in it.

    Attributes:
      memory: the pool.
      rows: by id, in the order of priority and admission.
      cached: tokens of each row that are in the cache once every plan so far has run.
      tails: the last tokens of each row's answer, less than fill a page; only where memory looks at tokens.
      drafts: draft tokens that a row has ready for its next step.
      flying: plans whose outcome is not known yet, oldest first.
      copies: (from, to) to be done before the next step.
      moved: first table entry of a row that differs from what its last plan showed.
      drew: when a row last drew a token, by the time at which that was planned, s; not of one that never has since its admission.
      slots: places that a static batch locks.
      turn: serial number of its last plan; NEVER before the first.
    """

    memory: Memory
    rows: Mapping[int, Row] = NONE
    cached: Mapping[int, int] = NONE
    tails: Mapping[int, tuple[int, ...]] = NONE
    drafts: Mapping[int, int] = NONE
    flying: tuple[Plan, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    moved: Mapping[int, int] = NONE
    drew: Mapping[int, float] = NONE
    slots: int = 0
    turn: int = NEVER


class Move(NamedTuple):
    """A row on its way between two workers. It holds memory on both until the transfer has ended, whatever becomes of it."""

    row: Row  # with the table of the target
    cached: int
    table: tuple[int, ...]  # of the source
    start: float  # s, when the link was free
    end: float
    what: HandOff
    cancelled: bool = False


class State(NamedTuple):
    """What a policy takes and gives back. Make the first with `State.of(memory)`, one memory a worker.

    Attributes:
      waiting: in the order of service, each with the time at which it counts as late or is dropped.
      moving: transfers between workers, in the order in which they were decided.
      steps: plans so far.
      orders: admissions so far.
      next_id: ids below this one have been given out.
    """

    workers: tuple[Worker, ...]
    waiting: Queue = Queue()
    moving: tuple[Move, ...] = ()
    steps: int = 0
    orders: int = 0
    next_id: int = 0

    @classmethod
    def of(cls, *memories: Memory) -> State:
        """Raises UserError for workers of which some look for known prefixes and others don't: answers are kept for all or none."""
        if len({memory.remembers for memory in memories}) != 1:
            raise UserError("give every worker a prefix cache, or none of them")
        return cls(tuple(Worker(memory) for memory in memories))

    @property
    def rows(self) -> Iterator[Row]:
        """All that have memory."""
        for worker in self.workers:
            yield from worker.rows.values()
        for move in self.moving:
            yield move.row

    @property
    def idle(self) -> bool:
        """Nothing waits, runs, moves, or is to be reported."""
        return not (self.waiting or self.moving or any(worker.rows or worker.flying for worker in self.workers))


def seated(rows: Mapping[int, Row], row: Row) -> dict[int, Row]:
    """`row` joins those that run, by priority and admission."""
    joined = {**rows, row.id: row}
    if rows and next(reversed(rows.values())).seniority > row.seniority:  # type: ignore[call-overload]
        joined = {other.id: other for other in sorted(joined.values(), key=lambda other: other.seniority)}
    return joined


def without(mapping: Mapping, keys: set[int]) -> Mapping:
    """The mapping without the keys, some of which it has."""
    return {key: value for key, value in mapping.items() if key not in keys} if mapping else mapping
