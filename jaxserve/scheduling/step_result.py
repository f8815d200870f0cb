"""What a step did, and how that goes back into the state. The engine and the simulator call the same `update`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from jaxserve.kv.memory import News
from jaxserve.scheduling.admission import released
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import Row, State, Worker, seated


@dataclasses.dataclass(frozen=True, slots=True)
class StepResult:
    """What became of a plan's rows.

    Attributes:
      tokens: of each row, in the order of the plan, the tokens that were accepted: none where it draws none; one; or, where drafts
        were verified or several steps were run, one to `draws`.
      ended: rows that have ended, and why ("stop", ...). Those that reach their limit need not be named.
      drafts: how many draft tokens rows have ready for their next step, where there are any. A row that is planned further already,
        before this outcome was known, can't use them.
    """

    tokens: tuple[tuple[int, ...], ...]
    ended: Mapping[int, str] = dataclasses.field(default_factory=dict)
    drafts: Mapping[int, int] = dataclasses.field(default_factory=dict)


class End(NamedTuple):
    """An answer that is complete."""

    id: int
    reason: str  # what the outcome said, or "length"


def update(state: State, plan: Plan, outcome: StepResult) -> tuple[State, tuple[End, ...]]:
    """The state after a plan was run, and the rows that it ended, in the order of the plan.

    Where a row stands was settled when the plan was made, but for rows that verified drafts. So what is left to do is to take out
    those that ended, split samples, and tell memory whose tokens it now holds. Rows that were cancelled meanwhile are passed over.

    Raises:
      ValueError: the plan isn't the oldest one under way, or the outcome doesn't fit it: the caller runs a plan twice, or loses one.
    """
    worker = state.workers[plan.worker]
    if not worker.flying or worker.flying[0].step != plan.step:
        steps = [other.step for other in worker.flying]
        raise ValueError(f"plan {plan.step} is not the oldest under way on worker {plan.worker}, which are {steps}")
    accepted = tuple(map(len, outcome.tokens))
    if accepted != plan.draws:
        _check(plan, accepted, outcome.ended)
    worker = worker._replace(flying=worker.flying[1:])
    ended = dict.fromkeys(plan.final, "length") | dict(outcome.ended)
    if plan.verifies:
        worker = _settled(worker, plan, outcome)
        verified = {id for id, draws in zip(plan.ids, plan.draws, strict=True) if draws > 1}
        ended = {
            row.id: "length" for row in worker.rows.values() if row.id in verified and worker.cached[row.id] >= row.life
        } | ended
    if worker.memory.remembers:
        worker = _published(worker, plan, outcome)
    if plan.forking:
        state = _with(state, plan.worker, worker)
        for id in plan.forking:
            state = _forked(state, plan.worker, id)
        worker = state.workers[plan.worker]
    ends: tuple[End, ...] = ()
    if ended:
        ends = tuple(End(id, ended[id]) for id in plan.ids if id in ended and id in worker.cached)
        worker = released(worker, {end.id for end in ends})
    if outcome.drafts:
        gone_on = {id for other in worker.flying for id in other.ids}  # by now these drafts are of the past
        drafts = {id: count for id, count in outcome.drafts.items() if count > 0 and id in worker.cached and id not in gone_on}
        worker = worker._replace(drafts={**worker.drafts, **drafts})
    return _with(state, plan.worker, worker), ends


def _check(plan: Plan, accepted: tuple[int, ...], ended: Mapping[int, str]) -> None:
    """Fewer tokens than `draws` are right for drafts, and over several steps for a row that ended."""
    for id, draws, count in zip(plan.ids, plan.draws, accepted, strict=True):
        if not min(draws, 1) <= count <= draws or (count < draws and plan.steps > 1 and id not in ended):
            raise ValueError(f"plan {plan.step} draws up to {draws} tokens for row {id}; an outcome of {count} does not fit it")


def _with(state: State, index: int, worker: Worker) -> State:
    return state._replace(workers=(*state.workers[:index], worker, *state.workers[index + 1 :]))


def _settled(worker: Worker, plan: Plan, outcome: StepResult) -> Worker:
    """Rows that verified drafts: one token was counted in advance, now as many as were accepted."""
    cached = dict(worker.cached)
    for id, draws, tokens in zip(plan.ids, plan.draws, outcome.tokens, strict=True):
        if draws > 1 and id in cached:
            cached[id] += len(tokens) - 1
    return worker._replace(cached=cached)


def _published(worker: Worker, plan: Plan, outcome: StepResult) -> Worker:
    """Keep the tokens of the answers, and let others find every page that this step has filled."""
    memory, tails, page = worker.memory, dict(worker.tails), worker.memory.page
    filled: dict[int, tuple[int, int]] = {}
    for id, start, count, draws, tokens in zip(plan.ids, plan.starts, plan.counts, plan.draws, outcome.tokens, strict=True):
        if id in tails:
            tails[id] += tokens
            first, last = start // page, (start + (len(tokens) if draws > 1 else count)) // page
            if first < last:
                filled[id] = first * page, last * page
    if not filled:
        return worker._replace(tails=tails)
    rows, moved = dict(worker.rows), dict(worker.moved)
    for id in filled:
        rows[id] = rows[id]._replace(output=rows[id].output + tails[id])
        tails[id] = ()
    news = [News(rows[id].table, first, rows[id].between(first, last)) for id, (first, last) in filled.items()]
    memory, tables = memory.publish(news)
    for id, new, table in zip(filled, news, tables, strict=True):
        if table != new.table:
            moved[id] = min(moved.get(id, new.start // page), new.start // page)
            rows[id] = rows[id]._replace(table=table)
    return worker._replace(memory=memory, rows=rows, tails=tails, moved=moved)


def _forked(state: State, index: int, id: int) -> State:
    """Split the samples of a row whose prompt is in the cache. Each runs the prompt's last token again, to draw a first token of its own.

    Where memory has no place for a sample it joins the queue and will run the whole prompt.
    """
    worker = state.workers[index]
    parent = worker.rows.get(id)
    if parent is None:
        return state
    memory, copies, waiting, order = worker.memory, worker.copies, state.waiting, state.orders
    cached, tails, moved = dict(worker.cached), dict(worker.tails), dict(worker.moved)
    prompt = len(parent.request.prompt)
    # From here on it must ask before it writes: the page that it is in the middle of may be another's too.
    rows = {**worker.rows, id: parent._replace(forks=0, room=cached[id])}
    for i in range(1, parent.width):
        child = Row(parent.request, id + i, prompt, parent.life, order)
        order += 1
        grant = memory.share(parent.table, prompt - 1)
        if grant is None:
            waiting = waiting.add(child)
            continue
        memory, copies = grant.memory, copies + grant.copies
        rows = seated(rows, child._replace(goal=prompt - 1, table=grant.table, room=grant.room))
        cached[child.id], moved[child.id] = prompt - 1, 0
        if memory.remembers:
            tails[child.id] = ()
    worker = worker._replace(memory=memory, rows=rows, cached=cached, tails=tails, copies=copies, moved=moved)
    return _with(state, index, worker)._replace(waiting=waiting, orders=order)
