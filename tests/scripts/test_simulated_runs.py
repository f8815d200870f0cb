"""Experiment 6 without an engine: what stands for the measured run is a simulation of a machine that is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.calibration.calibration import Calibration
from costmodel.calibration.device import Device
from costmodel.calibration.engine_step import EngineStep
from costmodel.calibration.form import Parameter
from jaxserve.calibration.machine import Machine
from jaxserve.kv.layout import KVLayout
from jaxserve.load.result import Run
from jaxserve.programs.buckets import Buckets
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.names import policy_json
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.simulator.pace import Pace
from jaxserve.simulator.records import simulated
from models.config.presets import PRESETS
from models.errors import UserError
from scripts.simulated_runs import Compared, Figure, by_load, kept, page, simulate_again

LADDER = Buckets((4,), (8,), (2, 8), 16)


def machine(gap: float = 1e-3) -> Machine:
    parameters = tuple([Parameter(spec.name, spec.start, 0.01, spec.unit, spec.meaning) for spec in EngineStep.specs])
    calibration = Calibration("engine step", Device("host", 1e10, 1e11, 2, 1e7), parameters, (-0.1, 0.0, 0.1), 9, "made up")
    return Machine(
        calibration, Parameter("host gap", gap, 0.1, "s", "between steps"), "random:tiny", "float32", "float32", LADDER
    )


def run(warmup: int = 5) -> Run:
    """40 requests, 100 a second, of the machine with a gap of a millisecond."""
    known, policy, pool = machine(), Chunked(Limits(4), 16), KVLayout(24, 16)
    predictor = known.predictor(PRESETS["tiny"])
    requests = [Request(i, range(3 + 7 * i % 40), 4 + i % 9, 0.01 * i) for i in range(40)]
    records = simulated(policy, State.of(pool.memory()), requests, Pace(predictor.device, known.gap.value))
    settings = {
        "load": "made up",
        "scheduling": policy_json(policy),
        "pool": {"units": 24, "unit": 16, "dtype": pool.dtype, "kind": "paged", "prefix": True},
        "ladder": LADDER.to_json(),
    }
    return Run.of(records, warmup=warmup, witness="measured", settings=settings)


def test_the_same_machine_gives_the_same_times():
    found = Compared.of([run()], simulate_again(run(), machine(), steady=True))
    assert found.simulated.witness == "simulated" and len(found.simulated.records) == 35
    assert [record.tokens for record in found.simulated.records] == [record.tokens for record in found.measured[0].records]
    assert len(found.figures) == 4 and all(figure.error == 0 and figure.met for figure in found.figures)


def test_a_slower_machine_shows():
    """2 ms more between steps: a gap in the middle is 2 ms longer, but for which steps are in the middle."""
    found = Compared.of([run()], simulate_again(run(), machine(3e-3), steady=True))
    itl = {figure.percentile: figure for figure in found.figures if figure.metric == "itl"}
    assert itl["p50"].simulated - itl["p50"].measured == pytest.approx(2e-3, rel=0.01) and not itl["p50"].met


def test_steps_stray_as_the_calibration_says():
    """Errors between -0.1 and 0.1: the median gap is off by a tenth or so at most; answers are as long; a second time all is the same."""
    steady, strayed = simulate_again(run(), machine(), steady=True), simulate_again(run(), machine())
    assert [len(record.tokens) for record in strayed.records] == [len(record.tokens) for record in steady.records]
    first, same = strayed.summary.itl, steady.summary.itl
    assert first.p50 != same.p50 and first.p50 == pytest.approx(same.p50, rel=0.11)
    assert simulate_again(run(), machine()).records == strayed.records


def test_figures_by_hand():
    assert Figure("ttft", "p50", (0.2,), 0.219).met and not Figure("ttft", "p50", (0.2,), 0.221).met
    assert Figure("ttft", "p95", (0.2,), 0.161).met and not Figure("ttft", "p95", (0.2,), 0.159).met


def test_of_several_runs_the_median_counts():
    runs = [run(), run()]
    found = Compared.of(runs, simulate_again(runs[0], machine(), steady=True))
    assert len(found.measured) == 2 and all(len(figure.runs) == 2 for figure in found.figures)
    assert Figure("ttft", "p50", (0.1, 0.2, 0.9), 0.21).error == pytest.approx(0.05)
    assert [len(each) for each in by_load([*runs, run()])] == [3]
    with pytest.raises(UserError, match="served different requests"):
        Compared.of([run(), run(warmup=4)], runs[0])


def test_runs_that_were_kept(tmp_path: Path):
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"runs": [run().to_json()]}))
    (again,) = kept(path)
    assert again.records == run().records
    shown = "\n".join(page(machine(), [Compared.of([again], simulate_again(again, machine(), steady=True))]))
    assert "| made up | TTFT P50 |" in shown and "+0.0%" in shown and "1.00 ms between them" in shown
    for text, said in (("{", "not valid JSON"), ("[]", "holds no runs"), ('{"runs": []}', "holds no runs")):
        path.write_text(text)
        with pytest.raises(UserError, match=said):
            kept(path)
    with pytest.raises(UserError, match="no such file"):
        kept(tmp_path / "none")
