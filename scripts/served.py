"""What a system made of a workload, and the figures that follow from it: rates, gaps between tokens, and where the time went."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from costmodel.hardware.clock import Timings
from jaxserve.scheduling.step_record import StepRecord
from scripts.workload import Workload

Tokens = Sequence[Sequence[int]]


class Served(NamedTuple):
    """One run of one system.

    Attributes:
      seconds: from the first arrival to the last token.
      tokens: the answer of each request, in the order of the workload.
      times: s of each of those tokens, on one clock.
      records: of our engine's steps; none of a peer.
      contention: see `costmodel.hardware.clock.RunQueue`.
    """

    seconds: float
    tokens: Tokens
    times: Sequence[Sequence[float]]
    records: Sequence[StepRecord] = ()
    contention: float | None = None

    @property
    def useful(self) -> float:
        """Tokens of answers a second."""
        return sum(map(len, self.tokens)) / self.seconds

    def total(self, workload: Workload) -> float:
        """Tokens of prompts and answers a second."""
        return (workload.prompt_tokens + sum(map(len, self.tokens))) / self.seconds

    @property
    def gaps(self) -> Timings:
        """Times between the tokens of an answer (ITL), of all answers. Raises UserError where no answer has two tokens."""
        return Timings(tuple(after - before for times in self.times for before, after in pairwise(times)))


class Overhead(NamedTuple):
    """What a step costs beside its compiled call, of steps that decode at least so many rows and do nothing else."""

    steps: int
    median: float  # s
    p99: float  # s
    step: float  # s, of the whole step, median
    share: float  # of all these steps' time

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            **{f"{n}_ms": getattr(self, n) * 1e3 for n in ("median", "p99", "step")},
            "share": self.share,
        }


def pure(records: Iterable[StepRecord], rows: int) -> list[StepRecord]:
    """Steps that decode at least `rows` rows, one token each, and do nothing else."""
    return [each for each in records if each.rows >= rows and each.decode == each.rows and not each.prefill + each.draft]


def overhead(records: Iterable[StepRecord], rows: int) -> Overhead:
    """Of `pure` steps. Raises UserError where there are none."""
    steps = pure(records, rows)
    host, whole = Timings(tuple(r.host for r in steps)), Timings(tuple(r.host + r.measured for r in steps))
    return Overhead(len(steps), host.median, host.percentile(99), whole.median, host.total / whole.total)


class Part(NamedTuple):
    """What one kind of step took, all in all."""

    steps: int
    seconds: float
    share: float  # of the run
    tokens: int  # that it ran, without padding


def profile(served: Served) -> dict[str, Part]:
    """Where the time of a run went: compiled calls by the kinds of program of a step, the host's gaps, and the rest (the caller's).

    A step that runs several programs counts once, under all their kinds, such as "decode & prefill" for two programs and
    "decode + prefill" for one that does both.
    """
    kinds: dict[str, list[StepRecord]] = {}
    for record in served.records:
        kinds.setdefault(" & ".join(dict.fromkeys(map(kind_of, record.programs))), []).append(record)
    parts = {}
    for kind, records in kinds.items():
        seconds = sum(record.measured for record in records)
        tokens = sum(record.prefill + record.decode + record.draft for record in records)
        parts[kind] = Part(len(records), seconds, seconds / served.seconds, tokens)
    parts = dict(sorted(parts.items(), key=lambda part: -part[1].seconds))
    host = sum(record.host for record in served.records)
    rest = max(served.seconds - host - sum(part.seconds for part in parts.values()), 0.0)
    for name, time in (("host, between steps", host), ("rest", rest)):
        parts[name] = Part(0, time, time / served.seconds, 0)
    return parts


def kind_of(program: str) -> str:
    """decode, prefill, decode + prefill, verify, ...: a program's name without its sizes."""
    return re.sub(r" \d[\dx]*", "", program.partition(",")[0])


def padded_share(records: Iterable[StepRecord]) -> float:
    """Of the rows of all programs that ran, those that held nothing. A row of a prompt is one piece of it."""
    padded = live = 0
    for record in records:
        slots = sum(rows_of(program) for program in record.programs)
        padded, live = padded + record.padded, live + slots - record.padded
    return padded / (padded + live) if padded + live else 0.0


def rows_of(program: str) -> int:
    """Rows of a program, of all its segments: 68 of decode 64 + prefill 4x128."""
    return sum(int(rows) for rows in re.findall(r"[a-z] (\d+)", program.partition(",")[0]))


class Alike(NamedTuple):
    """How far two systems gave the same answers."""

    requests: int
    same: int  # requests whose answers are equal to the last token
    share: float  # of tokens up to each answer's first difference
    first: tuple[int, int] | None  # (request, position) of the difference that comes earliest in its answer


def alike(ours: Tokens, theirs: Tokens) -> Alike:
    """Compare answers to the same requests. After a first difference two greedy texts part for good, so nothing after it counts."""
    shared = [_shared(a, b) for a, b in zip(ours, theirs, strict=True)]
    apart = [(at, i) for i, at in enumerate(shared) if at < max(len(ours[i]), len(theirs[i]))]
    total = sum(max(len(a), len(b)) for a, b in zip(ours, theirs, strict=True))
    at, request = min(apart, default=(0, -1))
    return Alike(len(ours), len(ours) - len(apart), sum(shared) / total if total else 1.0, (request, at) if apart else None)


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
