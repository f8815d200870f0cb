"""Runs the plans of one worker: its KV pool, and the steps that the device has not answered yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxserve.logprobs import Logprobs
from jaxserve.mover import Mover, Pairs
from jaxserve.packing import Call
from jaxserve.programs import Programs
from jaxserve.scheduling.kinds import Kinds
from jaxserve.scheduling.plan import Plan
from jaxserve.seats import Seats
from jaxserve.step import Output
from models.layers import KV


class Drawn(NamedTuple):
    """What a program said of one row of a plan: the call and the place where it stands, for whoever wants more than tokens."""

    tokens: list[int]  # one; of a row that verifies, one after each of its tokens; of several steps, one of each
    logprobs: Logprobs | None  # of its segment, on the host
    line: int  # its row there


@dataclasses.dataclass
class Flight:
    """A plan that was handed to the device, or is about to be."""

    plan: Plan
    calls: list[Call]
    kinds: Kinds
    dispatched: float = 0.0  # s, before its first program was called
    host: float = 0.0  # s that the host kept the device waiting for it
    outputs: list[tuple[Output, ...]] = dataclasses.field(default_factory=list)


class Executor:
    """One worker's device side. `kv` is its current pool; every step replaces it."""

    def __init__(self, programs: Programs, kv: KV, mover: Mover, seats: Seats):
        self.programs, self.kv, self._mover, self._seats = programs, kv, mover, seats

    def copy(self, pairs: Pairs) -> None:
        """Copy units before the next step."""
        self.kv = self._mover.copy(self.kv, pairs)

    def receive(self, source: Executor, pairs: Pairs) -> None:
        """Take over units of another worker's pool."""
        self.kv = self._mover.send(source.kv, self.kv, pairs)

    def dispatch(self, flight: Flight) -> None:
        """Call the programs of a plan; they are not waited for."""
        if flight.plan.copies:
            self.copy(flight.plan.copies)
        for call in flight.calls:
            call.fill(self._seats.tokens)
            self.kv, outputs = self.programs[call.bucket](self.kv, call.work)
            flight.outputs.append(outputs)

    def fetch(self, flight: Flight, score: Callable[[int, Logprobs, int, int, int], None]) -> list[Drawn | None]:
        """Wait for a plan's tokens: what each of its rows drew, None where it draws nothing.

        What is drawn becomes known to the seats, so that the next step can be filled in.

        Args:
          score: takes the prompt log-probabilities of a row: (row of the plan, logprobs on the host, line, start, count).
        """
        drawn: list[Drawn | None] = [None] * len(flight.plan.ids)
        ids = np.array(flight.plan.ids, np.int64)
        for call, outputs in zip(flight.calls, flight.outputs, strict=True):
            for part, output in zip(call.parts, outputs, strict=True):
                tokens = np.asarray(output.tokens)
                found = output.logprobs.on_host() if output.logprobs is not None else None
                lines = np.flatnonzero(part.draws)
                rows = part.rows[lines]
                drew = tokens[lines]
                # Of drafts the tokens are only known once they are accepted: `Loop` tells the seats.
                verified = tokens.shape[1] > 1 and call.bucket.steps == 1
                if not verified:
                    self._seats.learn(ids[rows], part.seats[lines], part.starts[lines] + part.counts[lines], drew)
                for line, row, each in zip(lines.tolist(), rows.tolist(), drew.tolist(), strict=True):
                    drawn[row] = Drawn(each, found, line)
                if output.prompt is not None:
                    prompt = output.prompt.on_host()
                    for line, row in enumerate(part.rows.tolist()):
                        score(row, prompt, line, int(part.starts[line]), int(part.counts[line]))
        return drawn
