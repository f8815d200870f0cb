"""From a load and a client to a `Run`: the same for an engine of this process and for a server at a URL."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from costmodel import endings
from jaxserve.load.client import Client, Item
from jaxserve.load.recorder import TOKENIZER, UNFINISHED, RequestRecord
from jaxserve.load.result import Pool, Run
from jaxserve.load.schedule import Schedule
from jaxserve.load.source import Alphabet
from jaxserve.load.spec import Load, LoadSpec
from jaxserve.load.warm import Beginnings, warm_tokens
from models.errors import UserError

Alphabets = Callable[[int], Alphabet]  # of a key
Bar = Callable[[str, int], Callable[[int], None]]  # (what, total) -> call with each advance


@dataclasses.dataclass(frozen=True)
class Server:
    """What is measured: an engine of this process, or a server at a URL.

    Attributes:
      client: within its context.
      alphabet: makes prompts of its tokens.
      bar: shows progress.
      fresh: called before each run.
      more: settings that the client does not know, asked after each run.
    """

    client: Client
    alphabet: Alphabets
    bar: Bar = lambda what, total: lambda count: None
    fresh: Callable[[], None] = lambda: None
    more: Callable[[], dict[str, Any]] = dict


def measure(server: Server, asked: LoadSpec, load: Load, part: int = 0) -> Run:
    """Run one load.

    Args:
      part: number of this run among those on the same server, see `LoadSpec.drawn`.
    """
    rng, _, _ = asked.drawn(part)
    client, alphabet = server.client, server.alphabet
    server.fresh()
    ended = server.bar(load.name, asked.requests)
    played = play(client, load.schedule(rng), _items(asked, alphabet, part), until=asked.duration, ended=ended)
    known = client.known()
    counts = known.counts
    records = [r._replace(output=counts[r.id], counted=TOKENIZER) if r.id in counts else r for r in played.records]
    return Run.of(
        records,
        warmup=asked.warmup,
        witness="measured",
        settings={**asked.settings(load, part), **known.settings, **server.more()},
        warm=_warm(records, _items(asked, alphabet, part)) if known.caches else None,
        complete=not played.why,
        why=played.why,
        steady=load.steady,
        slo=asked.slo,
        steps=known.steps,
        pool=known.pool,
        programs=known.programs,
    )


def check_clients(load: Load, asked: LoadSpec, pool: Pool, *, prefix: bool) -> None:
    """Raise UserError for more clients than the pool can ever hold, whatever they ask for.

    Args:
      pool: of all workers.
      prefix: prompts may share pages, so that only answers need some of their own.
    """
    _, requests, _ = asked.drawn(0)
    least = min(-(-(request.limit if prefix else request.life) // pool.unit) for request in requests)
    at_once = min(load.clients, asked.requests)  # the others have nothing to ask
    needed, what = at_once * least, "pages" if pool.kind == "paged" else "slots"
    if needed > pool.units:
        raise UserError(
            f"{load.clients} clients with at least {least} {what} of {pool.unit} tokens each would need {needed} at once, and the pool has "
            f"{pool.units}: it can never hold them all; ask for at most {pool.units // least} clients, or give --pages {needed}"
        )


def _items(asked: LoadSpec, alphabet: Alphabets, part: int) -> Iterator[Item]:
    """The requests as they are sent; the same ones each time."""
    _, requests, key = asked.drawn(part)
    letters = alphabet(key)
    for id, request in enumerate(requests):
        yield Item(id, letters.spell(request.prompt), request.limit)


def _warm(records: list[RequestRecord], items: Iterator[Item]) -> int:
    """What was found of earlier runs. Afterwards, so that nothing is looked up while requests are due."""
    beginnings, last = Beginnings(), max((record.id for record in records), default=-1)
    own = {}
    for item in items:
        if item.id > last:
            break
        own[item.id] = beginnings.add(item.prompt)
    return warm_tokens((record for record in records if record.reason != UNFINISHED), own)


# One run of a load: what is due is sent, and what comes back is taken down, until all has ended or something comes between.


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
