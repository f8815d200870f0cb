"""A calibrated machine as a file. Oracle: what was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.calibration.calibration import Calibration
from costmodel.calibration.device import Device
from costmodel.calibration.engine_step import EngineStep
from costmodel.calibration.form import Parameter
from jaxserve.calibration.machine import Machine
from jaxserve.programs.buckets import Buckets
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

LADDER = Buckets((1, 8), (8,), (4, 16), 16, prefills=(1,))
PARAMETERS = tuple(Parameter(s.name, s.start, 0.02, s.unit, s.meaning) for s in EngineStep.specs)
STEPS = Calibration("engine step", Device("host", 30e9, 200e9, 2, 32e6), PARAMETERS, (-0.1, 0.0, 0.2), 3, "made up")
MADE = Machine(STEPS, Parameter("host gap", 2e-3, 0.1, "s", "of the host"), "smollm2", "float32", "float32", LADDER)


def test_there_and_back(tmp_path: Path):
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(MADE.to_json()))
    assert Machine.read(file) == MADE


def test_it_predicts_with_its_gap():
    plan = Plan(0, ids=(0,), starts=(9,), counts=(1,), draws=(1,))
    predictor = MADE.predictor("llama-3.2-1b")
    assert predictor(plan) == pytest.approx(predictor.device(plan) + 2e-3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("[]", "it holds no calibrated machine"),
        (json.dumps({**MADE.to_json(), "gap": {}}), "its gap is none"),
    ],
)
def test_a_file_that_holds_none(tmp_path: Path, text: str, says: str):
    file = tmp_path / "machine.json"
    file.write_text(text)
    with pytest.raises(UserError, match=rf"machine\.json: {says}"):
        Machine.read(file)
    with pytest.raises(UserError, match=r"none\.json: no such file"):
        Machine.read(tmp_path / "none.json")
