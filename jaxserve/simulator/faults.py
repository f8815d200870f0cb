"""What can go wrong, on the virtual clock: slow steps, stalled workers, bursts of requests, clients that leave."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from jaxserve.load.recorder import RequestRecord
from jaxserve.load.served import CANCELLED
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Slow:
    """One step takes `factor` times as long, or all that begin within a time.

    Attributes:
      step: serial number of its plan, or
      at: s; then it is the first step that is handed to a worker and begins at this time or later.
      until: s, with `at`: it is every step that begins from `at` on and before this.
    """

    factor: float
    step: int | None = None
    at: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        _positive("a slow step's factor", self.factor)
        _either("a slow step", step=self.step, at=self.at)
        if self.until is not None and (self.at is None or not self.at < self.until < math.inf):
            raise UserError(
                f"slow steps from {self.at} to {self.until} s; give a time to begin with, and a later one to end with"
            )


@dataclasses.dataclass(frozen=True)
class Stall:
    """A worker does nothing from `at` on for `seconds`: a step that it is in the middle of takes so much longer."""

    worker: int
    at: float
    seconds: float

    def __post_init__(self) -> None:
        _positive("a stall's seconds", self.seconds)
        _time("a stall", self.at)
        if self.worker < 0:
            raise UserError(f"a stall is of worker {self.worker}; workers are counted from 0")


@dataclasses.dataclass(frozen=True)
class Burst:
    """So many requests more at one moment, all of this prompt and answer, in tokens."""

    at: float
    requests: int
    prompt: int
    output: int

    def __post_init__(self) -> None:
        _time("a burst", self.at)
        for name in ("requests", "prompt", "output"):
            if getattr(self, name) < 1:
                raise UserError(f"a burst: {name} is {getattr(self, name)}; it must be at least 1")


@dataclasses.dataclass(frozen=True)
class Leave:
    """A client goes away before its answer is over.

    Attributes:
      id: of the request, or of one sample.
      at: s, or
      tokens: as soon as it has so many.
    """

    id: int
    at: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        _either("a client that leaves", at=self.at, tokens=self.tokens)
        if self.tokens is not None and self.tokens < 1:
            raise UserError(f"a client leaves after {self.tokens} tokens; give at least 1, or a time")


Fault: TypeAlias = Slow | Stall | Burst | Leave


class Faults(NamedTuple):
    """The faults of a run, by kind."""

    slow: tuple[Slow, ...] = ()
    stalls: tuple[Stall, ...] = ()
    bursts: tuple[Burst, ...] = ()
    leaves: tuple[Leave, ...] = ()

    @classmethod
    def of(cls, faults: Iterable[Fault], workers: int) -> Faults:
        """Raises UserError for a stall of a worker that isn't there."""
        found = tuple(faults)
        stalls = [fault for fault in found if isinstance(fault, Stall)]
        for stall in stalls:
            if stall.worker >= workers:
                raise UserError(
                    f"a stall is of worker {stall.worker}, and the last one is worker {workers - 1}: they are counted from 0"
                )
        return cls(
            tuple(fault for fault in found if isinstance(fault, Slow)),
            tuple(sorted(stalls, key=lambda stall: stall.at)),
            tuple(sorted((fault for fault in found if isinstance(fault, Burst)), key=lambda burst: burst.at)),
            tuple(fault for fault in found if isinstance(fault, Leave)),
        )


def _either(what: str, **given: float | None) -> None:
    if sum(value is not None for value in given.values()) != 1:
        raise UserError(f"{what}: give either {' or '.join(given)}, not both and not neither")
    for name, value in given.items():
        if name == "at" and value is not None:
            _time(what, value)


def _positive(what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise UserError(f"{what} is {value}; it must be above 0, and finite")


def _time(what: str, at: float) -> None:
    if not 0 <= at < math.inf:
        raise UserError(f"{what} is due at {at} s; give a time from 0 on")


# Whether a fault came to anything: one that is due when all is over has changed no figure, and whoever asked for it has to
# know.


def unused_fault_reason(fault: Fault, records: Mapping[int, RequestRecord], steps: int, end: float) -> str:
    """Why not, for people; "" where something did.

    Args:
      records: of all answers, by id.
      steps: plans that were made; end: s, when the last thing happened.
    """
    match fault:
        case Slow(step=int(step)) if step >= steps:
            return f"there were {steps} steps, counted from 0"
        case Slow(at=float(at)) | Stall(at=float(at)) if at >= end:
            return f"all was over at {end:.4g} s"
        case Leave(id=id) if id not in records:
            return "it never came"
        case Leave(id=id) if records[id].reason != CANCELLED:
            return f"its answer was over at {records[id].end:.4g} s, with {records[id].output} tokens"
    return ""
