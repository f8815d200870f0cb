"""One plan in the making: the verbs of which every policy is composed.

A policy makes a `PlanBuilder` of the state, says who runs, and takes the plan and the next state out of it. The state it was made of is
not touched, so a policy stays a pure function.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from jaxserve.kv.memory import Grant, Memory, News, Want
from jaxserve.scheduling.admission import expire
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import HandOff, Plan
from jaxserve.scheduling.queue import Queue
from jaxserve.scheduling.state import Row, State, Worker, seated, without


class PlanBuilder:
    """The next step of one worker. Rows come into the plan in the order in which they are named."""

    def __init__(self, limits: Limits, state: State, now: float, worker: int = 0):
        self.limits, self.index, self.now = limits, worker, now
        self.state, self.expired = expire(state, limits, now)
        self.desk = WorkerDraft(state.workers[worker], self.state.waiting, state.orders)
        # No more can be planned until an outcome is known. It starts so where as many plans are under way as may be, and becomes so
        # where a row would have to give up its memory: a plan that is under way may be about to end some row.
        self.waits = len(self.desk.before.flying) > limits.ahead
        # Rows that can't simply draw a token: those whose prompt isn't at its end, or that are short of memory.
        cached = self.desk.cached
        rows = () if self.waits else self.desk.rows.values()  # where nothing can be planned, asking is cheap
        self._odd = [row for row in rows if not row.goal <= cached[row.id] < row.room]
        self.steps = 1
        self.ids: list[int] = []
        self.starts: list[int] = []
        self.counts: list[int] = []
        self.draws: list[int] = []
        self.tables: list[tuple[int, ...]] = []
        self.admitted: list[int] = []
        self.preempted: list[int] = []
        self.forking: list[int] = []
        self.final: list[int] = []

    @property
    def queue(self) -> Queue:
        """Rows that wait, in the order of service."""
        return self.desk.queue

    @property
    def rows(self) -> Mapping[int, Row]:
        """Rows that have been admitted and haven't ended, by id, in the order of priority and admission."""
        return self.desk.rows

    @property
    def cached(self) -> Mapping[int, int]:
        """Tokens of each of `rows` that are in the cache once every plan so far, and this one as far as it is made, has run."""
        return self.desk.cached

    @property
    def drew(self) -> Mapping[int, float]:
        """When each of `rows` last drew a token, by the time at which that was planned, s; a row that never has is not there."""
        return self.desk.before.drew

    @property
    def flying(self) -> tuple[Plan, ...]:
        """Plans of this worker whose outcome isn't known yet, oldest first."""
        return self.desk.before.flying

    @property
    def partial(self) -> list[Row]:
        """Of `rows`, those whose prompt isn't at its end, but for those that are admitted in this plan."""
        cached = self.desk.cached
        return [row for row in self._odd if row.id in cached and cached[row.id] < row.goal]

    def decode(self, spare: int = 0) -> int:
        """Every row that is past its prompt draws its next token; up to `spare` drafts of theirs are verified beside.

        A row that needs memory takes it from the row that was admitted last, which goes back to the front of the queue; if that is
        itself, it goes. Call it once, before rows are prefilled or admitted: a row that is in the plan is not taken out again.

        Returns:
          Tokens that they run.
        """
        if self.waits:
            return 0
        cached = self.desk.cached
        short = [row for row in self._odd if row.goal <= cached[row.id] < row.life]
        if short and not self.desk.grow(short, 1):
            for row in short:
                if row.id in cached and not self._make_room(row):
                    return 0
        ready = self._ready() if self.partial or self.desk.before.flying else list(self.rows.values())
        self.ids = [row.id for row in ready]
        self.starts = [cached[id] for id in self.ids]
        self.counts = self._verifying(ready, spare) if self.desk.drafts else [1] * len(ready)
        self.draws = list(self.counts)
        self.tables = [row.table for row in ready]
        self.final = [row.id for row, start in zip(ready, self.starts, strict=True) if start + 1 >= row.life]
        cached.update(zip(self.ids, map((1).__add__, self.starts), strict=True))
        return sum(self.counts)

    def prefill(self, row: Row, tokens: float) -> int:
        """Run up to `tokens` of the rest of a row's prompt: how many it will be."""
        start = self.desk.cached[row.id]
        stop = start + int(min(tokens, row.goal - start))
        if self.waits or stop <= start:
            return 0
        self.ids.append(row.id)
        self.starts.append(start)
        self.counts.append(stop - start)
        self.draws.append(int(stop == row.goal))
        self.tables.append(row.table)
        self.desk.run(row, start, stop)
        if stop == row.goal and row.forks:
            self.forking.append(row.id)
        if stop >= row.life:
            self.final.append(row.id)
        return stop - start

    def admit(self, row: Row, tokens: float = math.inf, *, whole_life: bool = False) -> int:
        """Give a waiting row memory and run up to `tokens` of its prompt: how many; 0 where a cap or memory refuses it.

        Memory is asked for all known tokens at once, so that no prompt is given up half-way; with `whole_life`, or after too many
        preemptions, for the longest that the row can become. Nobody is admitted in a step that preempted.
        """
        if self.waits or self.preempted or tokens < 1 or sum([o.width for o in (row, *self.rows.values())]) > self.limits.rows:
            return 0
        whole_life |= row.preemptions >= self.limits.preemptions
        known = row.tokens if row.request.reuse else ()
        grant = self.desk.memory.admit(known, row.life if whole_life else row.goal)
        if grant is None or not self._under_cap(row.goal - grant.cached):
            return 0
        self.admitted.append(row.id)
        return self.prefill(self.desk.seat(row, grant), tokens)

    def preempt(self, row: Row) -> bool:
        """Take the memory of one of `rows` for others: it waits, before all that have never run, to run all its known tokens again.

        Returns:
          Whether it was taken. It is not from a row that is in this plan, or has lost its memory as often as it may; nor while a plan
          is under way, whose outcome may end that row, or another.
        """
        if (
            self.waits
            or self.flying
            or row.id in self.ids
            or row.id not in self.rows
            or row.preemptions >= self.limits.preemptions
        ):
            return False
        self._drop(self.rows[row.id])
        return True

    def fill(self, budget: float, piece: int = 1) -> None:
        """Run up to `budget` tokens of prompts: of those that have begun, then of the queue, in order, until one is refused. Each takes
        whole pieces, but for a prompt's last, which counts as whole."""
        for row in itertools.chain(self.partial, self.queue):
            part = budget - budget % piece if piece > 1 else budget
            tokens = self.prefill(row, part) if row.id in self.rows else self.admit(row, part)
            if not tokens and row.id not in self.rows:
                break
            budget -= -(-tokens // piece) * piece

    def repeat(self, steps: int) -> None:
        """Let the plan run `steps` times, if that delays nobody and takes memory from nobody.

        That is: nobody waits, every row is in the plan, decodes without drafts and stays within its limit, and memory has the room.
        Otherwise the plan is run once.
        """
        cached, rows, more = self.desk.cached, self.rows.values(), steps - 1
        if not more or self.queue or self.preempted or len(self.ids) < len(rows) or set(self.counts) != {1}:
            return
        if any(cached[row.id] <= row.goal or cached[row.id] + more > row.life for row in rows):
            return
        short = [row for row in rows if cached[row.id] + more > row.room]
        if short and not self.desk.grow(short, more):
            return
        self.steps, self.draws = steps, [steps] * len(self.ids)
        for id in self.ids:
            cached[id] += more
        self.tables = [row.table for row in self.rows.values()]
        self.final = [row.id for row in self.rows.values() if cached[row.id] >= row.life]

    def done(
        self, *, slots: int | None = None, hand_offs: tuple[HandOff, ...] = (), wake: float = math.inf
    ) -> tuple[Plan, State]:
        """The plan and the state after it.

        Args:
          slots: places that the batch takes up, where those are more than its rows.
          hand_offs: transfers that start beside it.
          wake: s, when the policy wants to be called again, if it isn't for the queue.
        """
        old, desk = self.state, self.desk
        wake = min(wake, (old.waiting if self.waits else desk.queue).due)
        if self.waits:  # whatever was tried of the worker is given up
            plan = Plan(old.steps, self.index, expired=self.expired, hand_offs=hand_offs, wake=wake)
            return plan, old._replace(steps=old.steps + (not plan.idle))
        plan = Plan(
            step=old.steps,
            worker=self.index,
            ids=tuple(self.ids),
            starts=tuple(self.starts),
            counts=tuple(self.counts),
            draws=tuple(self.draws),
            tables=tuple(self.tables),
            moved=tuple([(i, desk.moved.pop(id)) for i, id in enumerate(self.ids) if id in desk.moved]) if desk.moved else (),
            steps=self.steps,
            copies=desk.copies,
            slots=len(self.ids) if slots is None else slots,
            final=tuple(self.final),
            forking=tuple(self.forking),
            admitted=tuple(self.admitted),
            preempted=tuple(self.preempted),
            expired=self.expired,
            hand_offs=hand_offs,
            wake=wake,
        )
        before = desk.before
        worker = Worker(
            memory=desk.memory,
            rows=desk.rows,
            cached=desk.cached,
            tails=desk.tails,
            drafts=without(desk.drafts, set(self.ids)) if desk.drafts else desk.drafts,
            flying=(*before.flying, plan) if self.ids else before.flying,
            moved=desk.moved,
            drew=self._drew(),
            slots=plan.slots if self.ids else before.slots,
            turn=plan.step if self.ids else before.turn,
        )
        workers = (*old.workers[: self.index], worker, *old.workers[self.index + 1 :])
        return plan, State(workers, desk.queue, old.moving, old.steps + (not plan.idle), desk.orders, old.next_id)

    def _drew(self) -> Mapping[int, float]:
        """When rows last drew a token, after this plan."""
        old = without(self.desk.before.drew, set(self.preempted)) if self.preempted else self.desk.before.drew
        now = self.now
        return old | {id: now for id, draws in zip(self.ids, self.draws, strict=True) if draws} if self.ids else old  # type: ignore[operator]

    def _ready(self) -> list[Row]:
        """Rows that can draw their next token: past their prompt, with tokens left to run, and known where they stand."""
        cached = self.desk.cached
        ready = [row for row in self.rows.values() if row.goal <= cached[row.id] < row.life]
        for plan in self.desk.before.flying:
            if plan.verifies:
                verified = {id for id, draws in zip(plan.ids, plan.draws, strict=True) if draws > 1}
                ready = [row for row in ready if row.id not in verified]
        return ready

    def _verifying(self, rows: list[Row], spare: int) -> list[int]:
        """Tokens that each row runs: its known one, and as many drafts as are ready, spared, within its limit and free of charge.

        `rows` are those that memory made of them.
        """
        counts = []
        for i, row in enumerate(rows):
            start = self.desk.cached[row.id]
            drafts = min(self.desk.drafts.get(row.id, 0), spare, row.life - start - 1)
            if drafts > 0 and start + 1 + drafts > row.room:
                drafts = drafts if self.desk.grow([row], 1 + drafts) else 0
                rows[i] = self.rows[row.id]
            counts.append(1 + drafts)
            spare -= drafts
        return counts

    def _make_room(self, row: Row) -> bool:
        """Room for one more token of a row, from others or by its own preemption. False where the plan has to wait for an outcome."""
        while not self.desk.grow([row], 1):
            if self.desk.before.flying:
                self.waits = True
                return False
            juniors = (other for other in reversed(self.desk.rows.values()) if other.seniority > row.seniority)
            may_go = (other for other in juniors if other.preemptions < self.limits.preemptions and other.id not in self.ids)
            victim = next(may_go, row)
            self._drop(victim)
            if victim is row:
                break
        return True

    def _drop(self, row: Row) -> None:
        self.desk.preempt(row)
        self.preempted.append(row.id)
        self._odd = [other for other in self._odd if other.id != row.id]

    def _under_cap(self, tokens: int) -> bool:
        """Whether so many prompt tokens more may be admitted and not yet run."""
        cap = self.limits.prefill_tokens
        if cap is None:
            return True
        planned = dict(zip(self.ids, self.counts, strict=True))
        begun = sum(max(row.goal - self.desk.cached[row.id] + planned.get(row.id, 0), 0) for row in self.rows.values())
        return not begun or begun + tokens <= cap


# A worker and the queue while a plan is being made: a copy that may be changed, so that the state it was made of need not be.


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
