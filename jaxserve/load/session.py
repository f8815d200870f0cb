"""Loads on a server, one after the other, or a search for where it saturates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from costmodel import endings
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run
from jaxserve.load.saturation import Saturation, saturate
from jaxserve.load.spec import Load, LoadSpec


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


def run_loads(asked: LoadSpec, measure: Callable[[Load, int], Run]) -> Found:
    """Every load, one after the other, until one of them is cut short; or a search for the rate at which they saturate.

    Args:
      measure: runs one load, which has this number among them.

    Raises:
      UserError: saturation is looked for, and the SLO asks for less than a step takes.
      KeyboardInterrupt: before there is a run to keep.
    """
    runs: list[Run] = []

    def probe(rate: float) -> Sequence[RequestRecord]:
        assert asked.slo is not None  # `LoadSpec` has seen to it
        runs.append(measure(asked.at(rate), len(runs)))
        if not runs[-1].complete:
            raise _CutShort
        if len(runs) == 1 and runs[0].steps:
            asked.slo.check_step(runs[0].quickest, "the quickest that was measured")
        return runs[-1].records

    try:
        if asked.saturate:
            assert asked.slo is not None and asked.rates
            found = saturate(probe, asked.slo, low=asked.rates[0], probes=asked.probes)
            return Found(tuple(runs), found)
        for load in asked.loads:
            runs.append(measure(load, len(runs)))
            if not runs[-1].complete:
                break
    except _CutShort:
        pass
    except KeyboardInterrupt as error:  # between two runs; within one it makes an incomplete run of it
        if not runs:
            raise
        return Found(tuple(runs), cut=endings.why(error))
    return Found(tuple(runs))
