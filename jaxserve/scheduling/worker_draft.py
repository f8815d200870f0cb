"""A worker and the queue while a plan is being made: a copy that may be changed, so that the state it was made of need not be."""

from __future__ import annotations

from collections.abc import Sequence

from jaxserve.kv.memory import Grant, Memory, News, Want
from jaxserve.scheduling.queue import Queue
from jaxserve.scheduling.state import Row, Worker, seated, without


class WorkerDraft:
    """What memory is lent to whom. The fields are those of `Worker`, and `queue` and `orders` those of the state."""

    def __init__(self, worker: Worker, queue: Queue, orders: int):
        self.before = worker
        self.memory: Memory = worker.memory
        self.rows, self.cached, self.moved = dict(worker.rows), dict(worker.cached), dict(worker.moved)
        self.tails, self.drafts, self.copies = worker.tails, worker.drafts, worker.copies
        self.queue, self.orders = queue, orders

    def seat(self, row: Row, grant: Grant) -> Row:
        """A waiting row is admitted with the memory that it was granted."""
        self.queue = self.queue.remove(row.id)
        self.memory = grant.memory
        row = row._replace(order=self.orders, table=grant.table, room=grant.room, late=False)
        self.orders += 1
        self.rows = seated(self.rows, row)
        self.cached[row.id], self.moved[row.id] = grant.cached, 0
        if self.memory.remembers:
            self.tails = {**self.tails, row.id: ()}
        return row

    def grow(self, rows: Sequence[Row], more: int) -> bool:
        """Room for `more` tokens beyond the cached ones of every one of these rows, or for none of them; whether there was."""
        wants = [Want(row.table, self.cached[row.id], self.cached[row.id] + more) for row in rows]
        growth = self.memory.grow(wants)
        if growth is None:
            return False
        self.memory, self.copies = growth.memory, self.copies + growth.copies
        for row, table, room, kept in zip(rows, growth.tables, growth.rooms, growth.kept, strict=True):
            self.moved[row.id] = min(self.moved.get(row.id, kept), kept)
            self.rows[row.id] = row.lent(table, room)
        return True

    def run(self, row: Row, start: int, stop: int) -> None:
        """Known tokens of the row, from position `start` to `stop`, are in the plan: rows that come after it may share their pages."""
        self.cached[row.id] = stop
        if self.memory.remembers:
            page = self.memory.page
            first, last = start - start % page, stop - stop % page
            if first < last:
                self.memory = self.memory.announce(News(row.table, first, row.between(first, last)))

    def preempt(self, row: Row) -> None:
        """The row gives its memory up and waits, before all that have never run, to run all its known tokens again (recompute)."""
        del self.rows[row.id]
        self.memory = self.memory.release(row.table)
        known = max(row.goal, self.cached.pop(row.id) + 1)
        self.moved.pop(row.id, None)
        output = row.output + self.tails.get(row.id, ())
        self.tails, self.drafts = without(self.tails, {row.id}), without(self.drafts, {row.id})
        back = row._replace(goal=known, table=(), room=0, preemptions=row.preemptions + 1, output=output)
        self.queue = self.queue.add(back)
