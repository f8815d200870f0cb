"""Tables for people. Oracle: what must stand in them, figure by figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from jaxserve.load.metrics import DEFINITIONS
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run
from jaxserve.load.saturation import saturate
from jaxserve.load.slo import SLO
from jaxserve.load.tables import show
from jaxserve.scheduling.step_record import StepRecord
from tests.jaxserve.load.records import record, served


def text(runs: Sequence[Run], saturation: Any = None) -> str:
    out = io.StringIO()
    show(Console(file=out, width=200), runs, saturation)
    return " ".join(out.getvalue().split())


def run(records: Sequence[RequestRecord], **fields: Any) -> Run:
    settings = {"load": "poisson 5/s", "policy": "continuous"}
    return Run.of(records, **{"witness": "measured", "settings": settings, "warm": 0, **fields})


def test_what_stands_there():
    records = [record(i, i / 10, (i / 10 + 0.1, i / 10 + 0.15)) for i in range(20)]
    records += [record(20, 1.0, reason="refused", error="too [many] wait"), record(21, 2.0, (), reason="stop")]
    found = text([run(records, warmup=2, slo=SLO(ttft={95: 0.25}))])
    for wanted in (
        "poisson 5/s, continuous (measured)",
        "20; length 18, refused 1, stop 1",
        "2 requests before",
        "too [many] wait",
        "TTFT P95",
        "250.00",
        "goodput",
        "cold: nothing",
        "may not be compared: rejections: 1 of",
        "client delay",
        "100.00*",  # P99 of 18
        *DEFINITIONS.values(),
    ):
        assert " ".join(wanted.split()) in found, wanted
    assert "nan" not in found.replace("Hyndman", "")


def test_warm_unknown_and_incomplete():
    assert "WARM: 24 prompt tokens" in text([run([served(0, 0.0, 1.0)], warm=24)])
    assert "nobody knows whether it was warm" in text([run([served(0, 0.0, 1.0)], warm=None)])
    assert "INCOMPLETE: interrupted by Ctrl-C" in text(
        [run([served(0, 0.0, 1.0)], complete=False, why="interrupted by Ctrl-C")]
    )


def test_a_limit_below_the_quickest_step():
    step = StepRecord(0, 0, "ab", ("decode 2",), 2, 0, 0, 2, 0, 2, 7, None, 0.01, 0.001, 1.5)
    found = text([run([served(0, 0.0, 1.0)], slo=SLO(itl={95: 0.005}), steps=(step,))])
    assert "below the quickest step, 10.00 ms" in found
    assert "quickest" not in text([run([served(0, 0.0, 1.0)], slo=SLO(itl={95: 0.02}), steps=(step,))])


def test_nothing_at_all():
    found = text([run([])])
    assert "none" in found and "too few arrivals" in found


def test_several_and_saturation():
    def quick(rate: float) -> list[RequestRecord]:
        return [served(i, i / rate, 0.001 * rate) for i in range(100)]

    found = text([run(quick(1.0)), run(quick(2.0))], saturate(quick, SLO(ttft={50: 0.01}), low=1.0))
    assert "All runs" in found and "admission limit" in found and "TTFT P50 16 ms" in found
