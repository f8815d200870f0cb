"""Where a request's time to its first token went, stage by stage. The parts sum to the whole, whatever is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jaxserve.load.quantiles import Quantiles
from jaxserve.load.recorder import RequestRecord

STAGES = {  # each ends where the next begins: the field of `RequestRecord` with which it ends, and what it is
    "client delay": ("sent", "the client was late"),
    "preprocessing": ("submitted", "checked and tokenised; over HTTP also the way there"),
    "aggregation": ("ready", "a worker was free, but the batch was still forming"),
    "queue": ("started", "no memory, no place or no worker was free"),
    "prefill": ("prefilled", "steps that ran its prompt, and those of others in between"),
    "emission": ("first", "from the step's end to the client"),
}


class Part(NamedTuple):
    """A stage, or several that nobody could tell apart. s."""

    name: str
    seconds: float


def split(record: RequestRecord) -> tuple[Part, ...]:
    """The stages of TTFT, in order; empty for a request without a token.

    Of a server that tells nothing of its inside, stages run together into one, named after all of them. A policy may let a request
    wait in its queue, then for company, then in the queue again: the two are sums over the whole wait, and stand in one order.
    """
    if not record.tokens:
        return ()
    ends = {**record._asdict(), "first": record.tokens[0]}
    parts, names, before = [], list[str](), record.intended
    for name, (field, _) in STAGES.items():
        names.append(name)
        if not math.isnan(end := ends[field]):
            parts.append(Part(" + ".join(names), end - before))
            names, before = [], end
    return tuple(parts)


class Share(NamedTuple):
    """One part over many requests."""

    name: str
    seconds: Quantiles
    share: float  # of all TTFT together


def shares(records: Iterable[RequestRecord]) -> tuple[Share, ...]:
    """Each part over the requests that were answered and have a first token; the means sum to the mean TTFT.

    Where some requests tell more than others, as of a mixed list, those of a coarser split stand beside the finer ones.
    """
    found: dict[str, list[float]] = {}
    total = 0.0
    for part in _parts(records):
        found.setdefault(part.name, []).append(part.seconds)
        total += part.seconds
    return tuple(Share(name, Quantiles.of(each), sum(each) / total if total else math.nan) for name, each in found.items())


def _parts(records: Iterable[RequestRecord]) -> Iterator[Part]:
    for record in records:
        if record.answered:
            yield from split(record)
