"""Runs the plans of one worker: its KV pool, and the steps that the device has not answered yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxserve.engine.compiled_programs import KVCopier, Pairs
from jaxserve.engine.input_batch import InputBatch
from jaxserve.engine.prepare_inputs import Call
from jaxserve.programs.logprobs import Logprobs
from jaxserve.programs.program_set import Programs
from jaxserve.programs.step import Output
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.token_counts import TokenCounts
from models.layers import KV


class SampledTokens(NamedTuple):
    """What the rows of a plan drew.

    Attributes:
      tokens: of each row: one; of a row that verifies, one after each of its tokens; of several steps, one of each. None where it
        draws nothing.
      logprobs: where programs give them: by row, those of its segment, on the host, and its line there.
    """

    tokens: list[tuple[int, ...] | None]
    logprobs: dict[int, tuple[Logprobs, int]]


@dataclasses.dataclass
class InFlightStep:
    """A plan that was handed to the device, or is about to be."""

    plan: Plan
    calls: list[Call]
    kinds: TokenCounts = dataclasses.field(default_factory=TokenCounts)  # this and the next two are for its record
    digest: str = ""
    predicted: float | None = None  # s
    dispatched: float = 0.0  # s, before its first program was called
    host: float = 0.0  # s that the host kept the device waiting for it
    outputs: list[tuple[Output, ...]] = dataclasses.field(default_factory=list)
    tokens: list[list[np.ndarray]] = dataclasses.field(default_factory=list)  # of `outputs`, once they are on the host


class ModelRunner:
    """One worker's device side. `kv` is its current pool; every step replaces it."""

    def __init__(self, programs: Programs, kv: KV, mover: KVCopier, seats: InputBatch):
        self.programs, self.kv, self._mover, self._seats = programs, kv, mover, seats

    def copy(self, pairs: Pairs) -> None:
        """Copy units before the next step."""
        self.kv = self._mover.copy(self.kv, pairs)

    def receive(self, source: ModelRunner, pairs: Pairs) -> None:
        """Take over units of another worker's pool."""
        self.kv = self._mover.send(source.kv, self.kv, pairs)

    def fill(self, flight: InFlightStep) -> None:
        """Put in the tokens that a plan goes on from, which were not known when it was packed."""
        for call in flight.calls:
            call.fill(self._seats)

    def dispatch(self, flight: InFlightStep) -> None:
        """Call the programs of a plan, whose tokens are filled in; they are not waited for."""
        if flight.plan.copies:
            self.copy(flight.plan.copies)
        for call in flight.calls:
            self.kv, outputs = self.programs[call.bucket](self.kv, call.work)
            flight.outputs.append(outputs)

    def wait(self, flight: InFlightStep) -> None:
        """Wait until a plan's tokens are on the host."""
        flight.tokens = [[np.asarray(output.tokens) for output in outputs] for outputs in flight.outputs]

    def learn(self, flight: InFlightStep) -> None:
        """What a plan's rows drew becomes known to the seats, so that the next step can be filled in.

        Of drafts the tokens are only known once they are accepted: `Loop` tells the seats.
        """
        for call, arrays in zip(flight.calls, flight.tokens, strict=True):
            for part, tokens in zip(call.parts, arrays, strict=True):
                if tokens.shape[1] == 1 or call.bucket.steps > 1:
                    lines = part.lines
                    at = part.starts[lines] + part.counts[lines]
                    self._seats.learn(part.owners[lines], part.seats[lines], at, tokens[lines])

    def drawn(self, flight: InFlightStep, score: Callable[[int, Logprobs, int, int, int], None]) -> SampledTokens:
        """What each of a plan's rows drew.

        Args:
          score: takes the prompt log-probabilities of a row: (row of the plan, logprobs on the host, line, start, count).
        """
        drawn = SampledTokens([None] * len(flight.plan.ids), {})
        for call, outputs, arrays in zip(flight.calls, flight.outputs, flight.tokens, strict=True):
            for part, output, tokens in zip(call.parts, outputs, arrays, strict=True):
                rows = part.rows[part.lines].tolist()
                for row, each in zip(rows, zip(*tokens[part.lines].T.tolist(), strict=True), strict=True):
                    drawn.tokens[row] = each
                if output.logprobs is not None:
                    found = output.logprobs.on_host()
                    drawn.logprobs.update((row, (found, line)) for row, line in zip(rows, part.lines.tolist(), strict=True))
                if output.prompt is not None:
                    prompt = output.prompt.on_host()
                    for line, row in enumerate(part.rows.tolist()):
                        score(row, prompt, line, int(part.starts[line]), int(part.counts[line]))
        return drawn
