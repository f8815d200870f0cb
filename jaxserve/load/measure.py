"""From a load and a client to a `Run`: the same for an engine of this process and for a server at a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxserve.load.client import Client, Item
from jaxserve.load.record import TOKENIZER, UNFINISHED, RequestRecord
from jaxserve.load.result import Pool, Run
from jaxserve.load.run import play
from jaxserve.load.source import Alphabet
from jaxserve.load.spec import Load, LoadSpec
from jaxserve.load.warm import Beginnings, warm_tokens
from models.errors import UserError

Alphabets = Callable[[int], Alphabet]  # of a key


def measure(
    client: Client,
    asked: LoadSpec,
    load: Load,
    alphabet: Alphabets,
    *,
    part: int = 0,
    ended: Callable[[int], None] = lambda count: None,
    more: Mapping[str, Any] | None = None,
) -> Run:
    """Run one load.

    Args:
      client: within its context.
      alphabet: makes the prompts.
      part: number of this run among those on the same server, see `LoadSpec.drawn`.
      ended: told how many requests have just ended.
      more: settings that only the caller knows.
    """
    rng, _, _ = asked.drawn(part)
    played = play(client, load.schedule(rng), _items(asked, alphabet, part), until=asked.duration, ended=ended)
    known = client.known()
    counts = known.counts
    records = [r._replace(output=counts[r.id], counted=TOKENIZER) if r.id in counts else r for r in played.records]
    return Run.of(
        records,
        warmup=asked.warmup,
        witness="measured",
        settings={
            **asked.settings(load, part),
            **known.settings,
            **(more or {}),
        },
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
