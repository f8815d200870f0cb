"""Loads on a server, one after the other, or a search for where it saturates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxserve.load.asked import Asked, Load
from jaxserve.load.client import Client
from jaxserve.load.measure import Alphabets, measure
from jaxserve.load.record import Record
from jaxserve.load.result import Run
from jaxserve.load.saturation import Saturation, saturate

Bar = Callable[[str, int], Callable[[int], None]]  # (what, total) -> call with each advance


class Found(NamedTuple):
    """All runs, in order, and where they saturate, if that was asked."""

    runs: tuple[Run, ...]
    saturation: Saturation | None = None

    @property
    def why(self) -> str:
        """What came between; empty where everything was done."""
        return next((run.why for run in self.runs if not run.complete), "")


class _CutShort(Exception):
    """A run of a search was not complete; what there is stands in the list of runs."""


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
    asked: Asked
    alphabet: Alphabets
    bar: Bar
    fresh: Callable[[], None] = lambda: None
    more: Callable[[], dict[str, Any]] = dict

    def run(self) -> Found:
        """Every load, until one of them is cut short.

        Raises:
          UserError: saturation is looked for, and the SLO asks for less than a step takes.
        """
        if self.asked.saturate:
            return self._saturate()
        runs: list[Run] = []
        for part, load in enumerate(self.asked.loads):
            runs.append(self._measure(load, part))
            if not runs[-1].complete:
                break
        return Found(tuple(runs))

    def _measure(self, load: Load, part: int) -> Run:
        self.fresh()
        ended = self.bar(load.name, self.asked.requests)
        run = measure(self.client, self.asked, load, self.alphabet, part=part, ended=ended)
        return dataclasses.replace(run, settings={**run.settings, **self.more()})

    def _saturate(self) -> Found:
        asked, runs = self.asked, list[Run]()
        assert asked.slo is not None and asked.rates  # `Asked` has seen to it
        slo = asked.slo

        def probe(rate: float) -> Sequence[Record]:
            run = self._measure(asked.at(rate), len(runs))
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
