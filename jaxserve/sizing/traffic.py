"""The requests that a deployment is sized for: Poisson arrivals of one length, or the first of a recorded trace."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np

from costmodel.sizing import Demand
from jaxserve.load.arrivals import Poisson
from jaxserve.load.source import Traced
from jaxserve.scheduling.request import Request
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Requests in the order of their arrival, s from the start of the run.

    Attributes:
      requests: at least two.
      source: what they are, for people.
      rate: arrivals a second, on average.
    """

    requests: tuple[Request, ...]
    source: str
    rate: float

    @property
    def demand(self) -> Demand:
        return Demand.of(self.rate, [(len(request.prompt), request.limit) for request in self.requests])

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that enter the cache."""
        return max(request.life for request in self.requests)

    def at(self, rate: float) -> Traffic:
        """The same requests in the same order, all gaps stretched alike so that they come at this rate."""
        scale = self.rate / rate
        moved = tuple(dataclasses.replace(request, arrival=request.arrival * scale) for request in self.requests)
        return dataclasses.replace(self, requests=moved, rate=rate)

    def longer(self, times: int) -> Traffic:
        """So many times as many requests: the same over and over, one mean gap after the last."""
        count, span = len(self.requests), self.requests[-1].arrival + 1 / self.rate
        made = tuple(
            dataclasses.replace(request, id=turn * count + i, arrival=request.arrival + turn * span)
            for turn in range(times)
            for i, request in enumerate(self.requests)
        )
        return dataclasses.replace(self, requests=made)

    def at_once(self, count: int) -> Traffic:
        """So many of the same requests, from the first again after the last, all there at the start: an engine never short of work."""
        again = itertools.islice(itertools.cycle(self.requests), count)
        made = tuple(dataclasses.replace(request, id=id, arrival=0.0) for id, request in enumerate(again))
        return dataclasses.replace(self, requests=made)


def poisson(rate: float, prompt: int, answer: int, count: int, seed: int) -> Traffic:
    """`count` requests at exponential gaps of mean 1 / rate, all of one length.

    Raises:
      UserError: lengths below 1, fewer than two requests.
    """
    _enough(count)
    arrivals = itertools.islice(Poisson(rate).times(np.random.default_rng(seed)), count)
    made = tuple(Request(id, range(prompt), answer, arrival=at) for id, at in enumerate(arrivals))
    source = f"{count:,} requests of a Poisson process, prompts of {prompt} and answers of {answer} tokens, seed {seed}"
    return Traffic(made, source, rate)


def from_trace(path: Path, count: int, most: int, of: str, *, time: float = 1.0, length: float = 1.0) -> Traffic:
    """The first `count` requests of a trace.

    Args:
      most: tokens that a sequence may have.
      of: whose limit that is.
      time, length: scales, see `jaxserve.load.trace.requests`.

    Raises:
      UserError: as `Traced.read` and `Traced.check`; fewer than two requests; all at one moment, which is no rate.
    """
    _enough(count)
    traced = Traced.read(path, count, time=time, length=length)
    traced.check(most, of)
    kept = tuple(traced.requests())
    if len(kept) < 2 or not kept[-1].arrival > 0:
        raise UserError(
            f"{path.name}: its first {len(kept)} requests have no rate; give at least 2 that come at different times"
        )
    scales = f"times x {time:g}, lengths x {length:g}"
    return Traffic(kept, f"the first {len(kept):,} requests of {path.name}, {scales}", (len(kept) - 1) / kept[-1].arrival)


def judged(count: int) -> slice:
    """Of so many requests by arrival, those that are judged: the first fifth fills the system and the last tenth empties it."""
    return slice(count // 5, max(count - count // 10, count // 5 + 1))


def split(context: int, prompt: int | None, answer: int | None) -> tuple[int, int]:
    """(prompt, answer) tokens of a sequence that ends with `context` tokens; by default a quarter of it is the answer.

    Raises:
      UserError: both are given and do not add up to the context, or there is nothing left for one of them.
    """
    if prompt is None and answer is None:
        answer = max(context // 4, 1)
    if prompt is None:
        prompt = context - (answer or 0)
    if answer is None:
        answer = context - prompt
    if prompt < 1 or answer < 1 or prompt + answer != context:
        raise UserError(
            f"a prompt of {prompt} and an answer of {answer} tokens are no sequence of --context {context}; give lengths of at least 1 "
            f"that add up to it, or one of the two"
        )
    return prompt, answer


def _enough(count: int) -> None:
    if count < 2:
        raise UserError(f"--requests is {count}; it must be at least 2")
