"""KV on its way from one worker to another: what it costs, when it arrives, and whose memory it holds until then."""

from __future__ import annotations

import dataclasses
import math

from jaxserve.kv.memory import Grant, News
from jaxserve.scheduling.plan import HandOff
from jaxserve.scheduling.state import Move, Row, State, Worker, seated, without
from jaxserve.values import integer, number, settle


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """What carries KV out of a worker, one transfer after the other.

    Attributes:
      token_bytes: B of KV of one token, over all layers.
      bandwidth: B/s.
      latency: s before the first byte.
    """

    token_bytes: int
    bandwidth: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        settle(
            self,
            token_bytes=integer("a link's token_bytes", self.token_bytes, 1),
            bandwidth=number("a link's bandwidth", self.bandwidth, lambda rate: rate > 0, "it must be above 0, in B/s"),
            latency=number(
                "a link's latency", self.latency, lambda s: 0 <= s < math.inf, "it must be at least 0 and finite, in s"
            ),
        )

    def seconds(self, bytes: int) -> float:
        """What a transfer takes that nothing else holds up."""
        return self.latency + bytes / self.bandwidth


def depart(state: State, row: Row, source: int, target: int, grant: Grant, link: Link, now: float) -> State:
    """`row` leaves worker `source` for `target`, which has granted it memory; what the target knows already isn't sent.

    The transfer waits for earlier ones out of the same worker. The row's memory on the source stays its own until the end.
    """
    workers = list(state.workers)
    old = workers[source]
    cached, tail = old.cached[row.id], old.tails.get(row.id, ())
    bytes = (cached - grant.cached) * link.token_bytes
    seconds = link.seconds(bytes)
    start = max([now, *(move.end for move in state.moving if move.what.source == source)])
    what = HandOff(row.id, source, target, (row.table, grant.table), grant.cached, cached, bytes, seconds)
    there = row._replace(table=grant.table, room=grant.room, output=row.output + tail)
    move = Move(there, cached, row.table, start, start + seconds, what)
    workers[source] = old._replace(
        rows=without(old.rows, {row.id}),
        cached=without(old.cached, {row.id}),
        tails=without(old.tails, {row.id}),
        drafts=without(old.drafts, {row.id}),
        moved=without(old.moved, {row.id}),
        drew=without(old.drew, {row.id}),
    )
    workers[target] = workers[target]._replace(memory=grant.memory)
    return state._replace(workers=tuple(workers), moving=(*state.moving, move))


def arrive(state: State, now: float) -> State:
    """Rows whose transfer has ended give their old memory back and decode where they are now."""
    landed = [move for move in state.moving if move.end <= now]
    if not landed:
        return state
    workers = list(state.workers)
    for move in landed:
        source, target = move.what.source, move.what.target
        workers[source] = workers[source]._replace(memory=workers[source].memory.release(move.table))
        workers[target] = _received(workers[target], move)
    return state._replace(workers=tuple(workers), moving=tuple(move for move in state.moving if move.end > now))


def next_arrival(state: State) -> float:
    """When the next transfer ends, s; inf if there is none."""
    return min((move.end for move in state.moving), default=math.inf)


def _received(worker: Worker, move: Move) -> Worker:
    row, memory = move.row, worker.memory
    if move.cancelled:
        return worker._replace(memory=memory.release(row.table))
    if memory.remembers:
        first, last = move.what.start, move.cached // memory.page * memory.page
        memory, (table,) = memory.publish([News(row.table, first, row.between(first, last))])
        row = row._replace(table=table)
    return worker._replace(
        memory=memory,
        rows=seated(worker.rows, row),
        cached={**worker.cached, row.id: move.cached},
        tails={**worker.tails, row.id: ()} if memory.remembers else worker.tails,
        moved={**worker.moved, row.id: 0},
    )
