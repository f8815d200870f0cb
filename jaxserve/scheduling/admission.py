"""Who comes in and who goes before the end: submission, cancellation, and those that have waited too long."""

from __future__ import annotations

import math

from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.request import QueueFull, Request
from jaxserve.scheduling.state import Row, State, Worker, without
from models.errors import UserError


def check(state: State, request: Request, limits: Limits) -> None:
    """Whether a request can ever be served.

    Raises:
      UserError: too long for memory or programs, more samples than rows, an id that was used.
    """
    capacity = min(worker.memory.capacity for worker in state.workers)
    if request.life > min(capacity, limits.context or capacity):
        longest, raise_what = min((capacity, "the KV pool"), (limits.context or math.inf, "the context limit"))
        raise UserError(
            f"request {request.id} has a prompt of {len(request.prompt)} tokens and up to {request.limit} are to follow, which needs "
            f"room for {request.life}, but the limit is {longest}; shorten the prompt, ask for fewer tokens or raise {raise_what}"
        )
    if request.samples > limits.rows:
        raise UserError(
            f"request {request.id} asks for {request.samples} samples, but at most {limits.rows} rows run at once; ask for fewer "
            f"samples or raise the limit of rows"
        )
    if request.id < state.next_id:
        raise UserError(f"request id {request.id} was given out before; the next free one is {state.next_id}")


def submit(state: State, request: Request, limits: Limits) -> State:
    """The state with the request in its queue. What is refused changes nothing, for the state is a value.

    Raises:
      UserError: the request could never be served, see `check`.
      QueueFull: too many wait already.
    """
    check(state, request, limits)
    row = Row(request, request.id, len(request.prompt), request.life, forks=request.samples - 1)
    rule = limits.rule(request.priority)
    if rule.size is not None and (waiting := state.waiting.of_priority(request.priority)) >= rule.size:
        raise QueueFull(
            f"request {request.id}: {waiting} requests of priority {request.priority} wait already and the limit is "
            f"{rule.size}; try again later or raise the queue size"
        )
    return state._replace(waiting=state.waiting.add(row, due(row, limits)), next_id=request.id + request.samples)


def due(row: Row, limits: Limits) -> float:
    """When a waiting row is dropped or falls behind; never once it has been admitted."""
    if row.ran:
        return math.inf
    request = row.request
    return request.deadline if row.late else min(request.deadline, request.arrival + limits.rule(request.priority).timeout)


def expire(state: State, limits: Limits, now: float) -> tuple[State, tuple[int, ...]]:
    """Drop waiting rows whose time is over, or let them fall behind, as the rules say: the state and the ids that were dropped."""
    if now < state.waiting.due:
        return state, ()
    waiting, expired = state.waiting, []
    for row in waiting.overdue(now):
        waiting = waiting.remove(row.id)
        if row.request.deadline > now and limits.rule(row.request.priority).late == "delay":
            late = row._replace(late=True)
            waiting = waiting.add(late, due(late, limits))
        else:
            expired.append(row.id)
    return state._replace(waiting=waiting), tuple(expired)


def cancel(state: State, id: int) -> State:
    """The state without that row, wherever it is: its memory is free at once, or when the transfer that it is in has ended.

    An id that has ended, or was never given out, changes nothing: a client may go away just as its answer ends. Cancelling a request
    whose samples have not split yet cancels them all.
    """
    if id in state.waiting:
        return state._replace(waiting=state.waiting.remove(id))
    if any(move.row.id == id for move in state.moving):
        moving = tuple(move._replace(cancelled=move.cancelled or move.row.id == id) for move in state.moving)
        return state._replace(moving=moving)
    return state._replace(workers=tuple(released(worker, {id}) for worker in state.workers))


def released(worker: Worker, ids: set[int]) -> Worker:
    """The worker without these rows, some of which it has, and with their memory free."""
    gone = [worker.rows[id] for id in worker.rows if id in ids]
    if not gone:
        return worker
    memory = worker.memory
    for row in gone:
        memory = memory.release(row.table)
    return worker._replace(
        memory=memory,
        rows=without(worker.rows, ids),
        cached=without(worker.cached, ids),
        tails=without(worker.tails, ids),
        drafts=without(worker.drafts, ids),
        moved=without(worker.moved, ids),
        drew=without(worker.drew, ids),
    )
