"""Loads on a server, one after the other, or a search for where it saturates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from costmodel import endings
from jaxserve.load.client import Client
from jaxserve.load.measure import Alphabets, measure
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run
from jaxserve.load.saturation import Saturation, saturate
from jaxserve.load.spec import Load, LoadSpec

Bar = Callable[[str, int], Callable[[int], None]]  # (what, total) -> call with each advance


class Found(NamedTuple):
    """All runs, in order, and where they saturate, if that was asked. cut: what came between two runs; "" for nothing."""

    runs: tuple[Run, ...]
    saturation: Saturation | None = None
    cut: str = ""

    @property
    def why(self) -> str:
        """What came between; empty where everything was done."""
        return next((run.why for run in self.runs if not run.complete), self.cut)


class _CutShort(Exception):
    """A run of a search was not complete; what there is stands in the list of runs."""


@dataclasses.dataclass(frozen=True)
class Loads:
    """All that is asked, load by load.

    Attributes:
      measure: runs one load, which has this number among them.
    """

    asked: LoadSpec
    measure: Callable[[Load, int], Run]

    def run(self) -> Found:
        """Every load, until one of them is cut short.

        Raises:
          UserError: saturation is looked for, and the SLO asks for less than a step takes.
          KeyboardInterrupt: before there is a run to keep.
        """
        runs: list[Run] = []
        try:
            return self._saturate(runs) if self.asked.saturate else self._each(runs)
        except KeyboardInterrupt as error:  # between two runs; within one it makes an incomplete run of it
            if not runs:
                raise
            return Found(tuple(runs), cut=endings.why(error))

    def _each(self, runs: list[Run]) -> Found:
        for part, load in enumerate(self.asked.loads):
            runs.append(self.measure(load, part))
            if not runs[-1].complete:
                break
        return Found(tuple(runs))

    def _saturate(self, runs: list[Run]) -> Found:
        asked = self.asked
        assert asked.slo is not None and asked.rates  # `LoadSpec` has seen to it
        slo = asked.slo

        def probe(rate: float) -> Sequence[RequestRecord]:
            run = self.measure(asked.at(rate), len(runs))
            runs.append(run)
            if not run.complete:
                raise _CutShort
            if len(runs) == 1 and run.steps:
                slo.check_step(run.quickest, "the quickest that was measured")
            return run.records

        try:
            found = saturate(probe, slo, low=asked.rates[0], probes=asked.probes)
        except _CutShort:
            return Found(tuple(runs))
        return Found(tuple(runs), found)


@dataclasses.dataclass(frozen=True)
class Session:
    """A server, and what it is to be asked.

    Attributes:
      client: within its context.
      alphabet: makes prompts of its tokens.
      fresh: called before each run.
      more: settings that the client does not know, asked after each run.
    """

    client: Client
    asked: LoadSpec
    alphabet: Alphabets
    bar: Bar
    fresh: Callable[[], None] = lambda: None
    more: Callable[[], dict[str, Any]] = dict

    def run(self) -> Found:
        """Every load. Raises as `Loads.run`."""
        return Loads(self.asked, self._measure).run()

    def _measure(self, load: Load, part: int) -> Run:
        self.fresh()
        ended = self.bar(load.name, self.asked.requests)
        run = measure(self.client, self.asked, load, self.alphabet, part=part, ended=ended)
        return dataclasses.replace(run, settings={**run.settings, **self.more()})
