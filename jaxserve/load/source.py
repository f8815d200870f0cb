"""What is asked: requests with lengths from a trace or drawn, and prompts of tokens that the model has."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from jaxserve.load.trace import LONGEST, Entry, read_lines, requests
from jaxserve.scheduling.request import Request
from models.errors import UserError, check_count, short
from models.files.json_text import DIGITS


class Span(NamedTuple):
    """Whole numbers from `low` to `high`, all equally likely."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str, what: str) -> Self:
        """Of "128" or "100-300". Raises UserError for anything else."""
        low, dash, high = text.strip().partition("-")
        if max(len(low), len(high)) > DIGITS:
            raise UserError(f"{what} is {short(text)}; it must be at most {LONGEST} (tokens, more than any model takes)")
        if not low.isdecimal() or not (high.isdecimal() if dash else True):
            raise UserError(f"{what} is {short(text)}; give a number of tokens, or two such as 100-300")
        span = cls(int(low), int(high) if dash else int(low))
        if not 1 <= span.low <= span.high:
            raise UserError(f"{what} is {short(text)}; it must begin at 1 or above and not go down")
        check_count(what, span.high, most=LONGEST, why="tokens, more than any model takes")
        return span

    def __str__(self) -> str:
        return f"{self.low}-{self.high}" if self.high > self.low else str(self.low)


class Source(Protocol):
    """Requests in order. Their prompts are made up; see `Alphabet`."""

    def requests(self, rng: np.random.Generator) -> Iterator[Request]:
        """The requests; arrivals are those of a trace, or 0."""

    @property
    def shares(self) -> bool:
        """Some prompts begin alike."""

    def to_json(self) -> dict[str, Any]:
        """What was asked, scales included."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Lengths that are drawn, endlessly. No prompt shares a beginning with another, but by chance."""

    prompt: Span
    output: Span
    shares = False

    def requests(self, rng: np.random.Generator) -> Iterator[Request]:
        used = 0
        for id in itertools.count():
            prompt, output = (int(rng.integers(span.low, span.high + 1)) for span in (self.prompt, self.output))
            yield Request(id, range(used, used + prompt), output)
            used += prompt

    def to_json(self) -> dict[str, Any]:
        return {"kind": "drawn", "prompt": str(self.prompt), "output": str(self.output)}


@dataclasses.dataclass(frozen=True)
class Traced:
    """The first requests of a trace.

    Attributes:
      name: of the file.
      lines: (line number, entry).
      time, length: scales, see `trace.requests`.
    """

    name: str
    lines: tuple[tuple[int, Entry], ...]
    time: float = 1.0
    length: float = 1.0

    @classmethod
    def read(cls, path: Path, count: int, *, time: float = 1.0, length: float = 1.0) -> Self:
        """The first `count` requests of a file, or all that it has.

        Raises:
          UserError: see `trace.read_trace` and `trace.requests`.
        """
        traced = cls(path.name, tuple(itertools.islice(read_lines(path), count)), time, length)
        list(traced.requests())  # what is wrong with a scale is said now
        return traced

    @property
    def shares(self) -> bool:
        return any(entry.blocks for _, entry in self.lines)

    def requests(self, rng: np.random.Generator | None = None) -> Iterator[Request]:
        return requests((entry for _, entry in self.lines), time=self.time, length=self.length)

    def check(self, context: int, of: str) -> None:
        """Raise UserError where a request doesn't fit.

        Args:
          context: tokens of the longest sequence.
          of: whose limit it is, for the message.
        """
        for (line, entry), request in zip(self.lines, self.requests(), strict=True):
            if request.life > context:
                scaled = (
                    f", {len(request.prompt)} and {request.limit} at the length scale {self.length:g}"
                    if self.length != 1
                    else ""
                )
                raise UserError(
                    f"{self.name} line {line}: {entry.prompt} prompt tokens and {entry.output} to follow{scaled} need a context of "
                    f"{request.life}, but {of} takes {context}; {self._advice(context)}"
                )

    def _advice(self, context: int) -> str:
        """The largest length scale, to two digits, at which all requests fit."""
        scale = min(context / (entry.prompt + max(entry.output, 1)) for _, entry in self.lines)
        while scale > 1e-4:
            digits = 10.0 ** (math.floor(math.log10(scale)) - 1)
            rounded = math.floor(scale / digits + 1e-9) * digits
            try:
                fits = dataclasses.replace(self, length=rounded).requests()
                if all(request.life <= context for request in fits):
                    return f"give --length-scale {rounded:.2g}, at which all {len(self.lines)} fit, or a larger context"
            except UserError:  # nothing is left of a block
                break
            scale = rounded - digits / 2
        return "no length scale makes all of them fit; give a larger context"

    def to_json(self) -> dict[str, Any]:
        return {"kind": "trace", "trace": self.name, "time_scale": self.time, "length_scale": self.length}


class Alphabet:
    """Makes prompts of a model's own tokens out of made-up ones: equal made-up tokens become equal tokens, others look random.

    So the beginnings that prompts of a trace share stay shared, and nothing else does.

    Args:
      tokens: ids below this exist.
      key: another one makes other prompts.
      avoid: ids that no prompt may hold, such as those that end an answer.

    Raises:
      UserError: no id is left.
    """

    def __init__(self, tokens: int, key: int, avoid: Collection[int] = ()):
        self._ids = np.setdiff1d(np.arange(max(tokens, 0)), np.fromiter(avoid, int, len(avoid)))
        if not len(self._ids):
            raise UserError(f"a vocabulary of {tokens} tokens leaves none for prompts; give a larger one")
        self._key = np.uint64(key)

    def spell(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """Token ids of a made-up prompt."""
        made_up = (
            np.arange(prompt.start, prompt.stop) if isinstance(prompt, range) else np.fromiter(prompt, np.int64, len(prompt))
        )
        mixed = _mixed(made_up.astype(np.uint64) + self._key)
        return tuple(self._ids[(mixed % np.uint64(len(self._ids))).astype(np.int64)].tolist())


def _mixed(x: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64 (Steele, Lea and Flood 2014, figure 13); u64 arithmetic wraps, as it should."""
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
