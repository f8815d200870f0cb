"""Studies of a machine that was calibrated. Oracles: its own predictor, asked for a plan and for its interval; a made-up calibration."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from costmodel.arch.catalog import as_architecture
from costmodel.hardware.chips import find_chip
from costmodel.sizing import Placement
from jaxserve.deployment.step_times import LEVEL, decode_plan, machine_caps, machine_steps
from jaxserve.scheduling.plan import Plan
from models.errors import UserError
from tests.jaxserve.calibration.test_machine import LADDER, MADE, STEPS
from tests.jaxserve.sizing.studies import Here

# A chip of the table stands for the machine, whose ceilings nobody measures for a test.
HERE = MADE._replace(calibration=dataclasses.replace(STEPS, device=STEPS.device._replace(name="h100-sxm")))
PLACED = Placement(as_architecture("smollm2-135m"), find_chip("h100"), dtype="float32", kv_dtype="float32")
MIXED = Plan(0, ids=(0, 1, 2), starts=(90, 40, 0), counts=(1, 1, 20), draws=(1, 1, 0))
FILE = Path("machine.json")
OPTIONS = ("--model", "smollm2-135m", "--dtype", "float32", "--kv-dtype", "float32", "--context", "64", "--rate", "2/s", "--ttft-p95",
           "60s", "--requests", "30", "--kv-pool", "1GiB")  # fmt: skip
CALIBRATED = ("--step-times", "calibrated", "--machine", str(FILE))


def test_steps_are_those_of_the_machine():
    """With its gap, which the interval leaves alone; pieces of prompts are filled up as its programs fill them."""
    times, wanted = machine_steps(PLACED, FILE, HERE, page=16, caps=(8,), context=128), HERE.predictor(PLACED.model)
    assert (
        times.witness == "calibrated"
        and times.host
        and times.piece == 16
        and times.quick is not None
        and times.slow is not None
    )
    for plan in (decode_plan(8, 100), decode_plan(1, 1), MIXED):
        assert times.seconds(plan) == wanted(plan)
        assert (times.quick(plan), times.slow(plan)) == pytest.approx(wanted.interval(plan, LEVEL))


def test_caps():
    """Rows that the engine had, half and a quarter of them."""
    assert machine_caps(HERE) == (2, 4, 8)
    assert machine_caps(HERE._replace(ladder=dataclasses.replace(LADDER, batches=(1,)))) == (1,)


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"chip": find_chip("a100")}, {}, r"was measured on one h100-sxm, and the study is of 1 x a100-.*; give --chip host"),
        ({"degree": 3}, {}, r"the study is of 3 x h100-sxm"),
        ({"dtype": "bfloat16"}, {}, r"was measured with --dtype float32, and bfloat16 is asked for; give --dtype float32"),
        ({"kv_dtype": "bfloat16"}, {}, r"was measured with --kv-dtype float32"),
        ({}, {"page": 32}, r"was measured with --page-size 16, and 32 is asked for"),
        ({}, {"caps": (4, 9)}, r"with at most 8 sequences at once, and 9 are asked for; ask for fewer, or .* --rows 9"),
        (
            {},
            {"context": 129},
            r"with at most 128 tokens a sequence, and 129 are asked for; ask for fewer, or .* --context 129",
        ),
    ],
)
def test_bad_input(changed: dict, options: dict, message: str):
    with pytest.raises(UserError, match=message) as caught:
        machine_steps(
            dataclasses.replace(PLACED, **changed), FILE, HERE, **{"page": 16, "caps": (8,), "context": 128, **options}
        )
    assert "\n" not in str(caught.value) and "machine.json" in str(caught.value)


def test_a_study(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The steps of a full batch are what the machine's predictor says, and the page says what they are made of."""
    monkeypatch.chdir(tmp_path)
    FILE.write_text(json.dumps(HERE.to_json()))
    found = json.loads(here(*OPTIONS, *CALIBRATED, "--json"))
    assert [each["batch"] for each in found["candidates"]] == [2, 4, 8] and "this machine's engine" in found["steps"]["source"]
    predictor = HERE.predictor("smollm2-135m")
    for each in found["candidates"]:
        assert each["calibrated_step"]["middle"] == predictor(decode_plan(each["batch"], 64))
    shown = " ".join(here(*OPTIONS, *CALIBRATED).split())
    assert "³ calibrated: programs of this machine's engine" in shown and "its calibrated time, and the host is in it" in shown


def test_what_does_not_go_together(here: Here):
    for options, message in (
        (CALIBRATED[2:], "--machine holds calibrated step times of an engine; give it with --step-times calibrated"),
        ((*CALIBRATED, "--silicon", "x"), "and without --silicon"),
        ((*CALIBRATED, "--search"), "--clients, --measured and --machine belong to the study of one deployment"),
        (CALIBRATED, r"machine\.json: no such file"),
    ):
        with pytest.raises(UserError, match=message):
            here(*OPTIONS, *options)
