"""One run of a load: what is due is sent, and what comes back is taken down, until all has ended or something comes between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from costmodel import endings
from jaxserve.load.client import Client, Item
from jaxserve.load.record import UNFINISHED, RequestRecord
from jaxserve.load.schedule import Schedule


class Played(NamedTuple):
    """What came of a load. why: what came between; empty where all that was asked was sent and has ended."""

    records: list[RequestRecord]
    why: str


def play(
    client: Client,
    schedule: Schedule,
    items: Iterator[Item],
    *,
    until: float = math.inf,
    ended: Callable[[int], None] = lambda count: None,
) -> Played:
    """Send items as they are due, and wait for all answers.

    Whatever happens, every request that was sent or due has a record: after Ctrl-C or a signal like it, or when the server is gone, those
    without an answer are "unfinished".

    Args:
      client: within its context.
      items: in order; when there are no more, nothing is sent any more.
      until: s; what is due from then on is not sent.
      ended: told how many have just ended.
    """
    records: list[RequestRecord] = []
    coming = next(items, None)
    shield = endings.Shield()
    client.begin()
    try:
        with shield:
            while not client.gone:
                with shield.up():  # what is sent has a record
                    while coming and schedule.due <= client.clock() and schedule.due < until:
                        item, coming = coming, next(items, None)
                        client.send(item, schedule.take())
                    due = schedule.due if coming and schedule.due < until else math.inf
                    if due == math.inf and client.idle:
                        return Played(records, "")
                over = client.wait(due)
                with shield.up():
                    for record in over:
                        schedule.ended(record.end)
                    records += over
                    ended(len(over))
            why = client.gone
    except KeyboardInterrupt as error:
        why = endings.why(error)
    records += client.stop()
    now = client.clock()
    while coming and schedule.due <= min(now, until):
        records.append(_unsent(coming, schedule.take(), now))
        coming = next(items, None)
    return Played(records, why)


def _unsent(item: Item, intended: float, now: float) -> RequestRecord:
    """Of a request that was due, and for which it was too late."""
    nan = math.nan
    return RequestRecord(
        item.id, intended, nan, nan, nan, nan, nan, (), now, len(item.prompt), 0, reason=UNFINISHED, error="it was not sent"
    )
