"""What one step is to do: a value that can be printed, hashed and replayed.

A plan lists rows in columns, for that is how a step takes them: those that decode first, then prompts. It is complete: whoever has
the pool, the tokens and the plan can run the step without asking the scheduler anything.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

Ids = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A row of a plan."""

    id: int
    start: int  # tokens of the row that are in the cache before the step
    count: int  # tokens that it runs, at most (a verify step may be given fewer drafts)
    draws: int  # tokens that it may draw: 0 while its prompt is not at its end, k + 1 to verify k drafts, one a step otherwise
    table: Ids


class HandOff(NamedTuple):
    """KV that moves from a worker that prefilled it to one that will decode. The copy may be issued when the plan is received."""

    id: int
    source: int  # worker
    target: int
    pages: tuple[Ids, Ids]  # tables there; the target's leading tokens may be known already
    start: int  # first token that moves
    stop: int
    bytes: int
    seconds: float  # on the link, without waiting for earlier transfers


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """One step of one worker, and what was decided beside it.

    Attributes:
      step: serial number of the plan, over all workers.
      worker: who runs it.
      ids, starts, counts, draws, tables: the rows, see `Task`.
      moved: (row of the plan, first entry) where a table differs from what the row's last plan showed; the first plan of a row shows
        it from 0. What is not named here is as before.
      steps: so many tokens in a row may be drawn without asking again (multi-step decode); a row that ends earlier stops there.
      copies: (from, to) pages or slots to be copied before the step, or where there are no rows, by themselves; all are read before
        any is written.
      slots: rows that the batch takes up: a static batch keeps the places of rows that have ended.
      final: rows that this step brings to their limit.
      forking: rows whose samples split after this step.
      admitted, preempted, expired: ids, in the order in which it happened. An expired request is never run.
      hand_offs: transfers that start now.
      wake: s, when the policy wants to be called again even if nothing happens before; inf if there is nothing to wait for.
    """

    step: int
    worker: int = 0
    ids: Ids = ()
    starts: Ids = ()
    counts: Ids = ()
    draws: Ids = ()
    tables: tuple[Ids, ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    steps: int = 1
    copies: tuple[tuple[int, int], ...] = ()
    slots: int = 0
    final: Ids = ()
    forking: Ids = ()
    admitted: Ids = ()
    preempted: Ids = ()
    expired: Ids = ()
    hand_offs: tuple[HandOff, ...] = ()
    wake: float = math.inf

    @property
    def rows(self) -> Iterator[Task]:
        return map(Task, self.ids, self.starts, self.counts, self.draws, self.tables)

    @property
    def tokens(self) -> int:
        """Tokens that the step runs, or each of its `steps` does."""
        return sum(self.counts)

    @property
    def verifies(self) -> bool:
        """Whether some row may draw fewer tokens than it runs, so that where it stands is known only from the outcome."""
        return self.steps == 1 and max(self.draws, default=0) > 1

    @property
    def idle(self) -> bool:
        """Nothing to do and nothing to report."""
        return not (self.ids or self.copies or self.preempted or self.expired or self.hand_offs)

    @property
    def digest(self) -> str:
        """32 hex digits of all that was decided. Times are no part of it, and of tables only what moved, so that it is quick.

        Equal sequences of digests therefore mean equal sequences of plans.
        """
        flat = [self.step, self.worker, self.steps, self.slots]
        for column in (self.ids, self.starts, self.counts, self.draws, self.final, self.forking):
            flat += (len(column), *column)
        for row, first in self.moved:
            flat += (row, first, len(self.tables[row]), *self.tables[row][first:])
        for copy in self.copies:
            flat += copy
        for ids in (self.admitted, self.preempted, self.expired):
            flat += (len(ids), *ids)
        for move in self.hand_offs:
            source, target = move.pages
            flat += (move.id, move.source, move.target, move.start, move.stop, move.bytes)
            flat += (len(source), *source, len(target), *target)
        flat += (len(self.moved), len(self.copies), len(self.hand_offs))
        return hashlib.blake2b(struct.pack(f"<{len(flat)}q", *flat), digest_size=16).hexdigest()

    @property
    def brief(self) -> str:
        """For people, in one line: what the step is, and what happened beside it."""
        return "; ".join([self._headline, *self._events])

    def __str__(self) -> str:
        """For people: a line for the step, one for each event, one for each row."""
        rows = (
            f"row {row.id}: tokens {row.start} to {row.start + row.count - 1}, draws {row.draws}, in {list(row.table)}"
            for row in self.rows
        )
        return "\n  ".join([self._headline, *self._events, *rows])

    @property
    def _headline(self) -> str:
        what = f"step {self.step} on worker {self.worker}: {len(self.ids)} rows in {self.slots} slots, {self.tokens} tokens"
        return what + (f", {self.steps} times" if self.steps > 1 else "")

    @property
    def _events(self) -> Iterator[str]:
        for name in ("admitted", "preempted", "expired", "final", "forking", "copies"):
            if getattr(self, name):
                yield f"{name}: {', '.join(map(str, getattr(self, name)))}"
        for move in self.hand_offs:
            yield f"row {move.id} moves from worker {move.source} to {move.target}: {move.bytes} B in {move.seconds:.6f} s"
