"""Step times of a sizing study. Oracles: the predictors themselves, asked for a plan and for its interval in their own way."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel.arch.catalog import as_architecture
from costmodel.calibration.shipped import kernels
from costmodel.calibration.transfer import transfer
from costmodel.hardware.chips import find_chip
from costmodel.sizing import Placement
from jaxserve.deployment.step_times import LEVEL, StepTimes, analytical, calibrated, decode_plan, step_times
from jaxserve.predict.calibrated import KernelCalibrated
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

MODEL = as_architecture("llama-3-8b")
MIXED = Plan(0, ids=(0, 1, 2), starts=(900, 40, 0), counts=(1, 1, 300), draws=(1, 1, 0))
PLANS = (decode_plan(64, 1024), decode_plan(1, 1), MIXED)


def placed(chip: str, **fields: object) -> Placement:
    return dataclasses.replace(Placement(MODEL, find_chip(chip)), **fields)  # type: ignore[arg-type]


def test_the_roofline_is_that_of_the_candidates():
    """A step of 64 rows that all hold 1,024 tokens, as `costmodel.step_cost` has it for the table of candidates."""
    placement = placed("h100")
    times = analytical(placement)
    assert times.witness == "analytical" and times.quick is None and times.slow is None
    assert times.seconds(decode_plan(64, 1024)) == pytest.approx(float(placement.step("full", 64, 1024).seconds()))


@pytest.mark.parametrize("chip", ["h100", "a100"])
def test_the_ends_are_those_of_the_interval(chip: str):
    """What `KernelCalibrated.interval` says of each plan."""
    times, wanted = calibrated(placed(chip), None), KernelCalibrated(MODEL, transfer(kernels(None), find_chip(chip)))
    assert times.witness == "calibrated" and times.quick is not None and times.slow is not None
    for plan in PLANS:
        assert times.seconds(plan) == wanted(plan)
        assert (times.quick(plan), times.slow(plan)) == pytest.approx(wanted.interval(plan, LEVEL))


def test_what_was_carried_over_is_less_sure():
    """Between the ends there is a larger factor on a chip that was never measured; and the source says that it was not."""
    here, there = (calibrated(placed(chip), None) for chip in ("h100", "a100"))

    def width(times: StepTimes) -> float:
        assert times.quick is not None and times.slow is not None
        return times.slow(MIXED) / times.quick(MIXED)

    assert width(there) > 1.3 * width(here)
    assert "carried over to the data sheet of a100-sxm-80gb" in there.source and "carried over" not in here.source


@pytest.mark.parametrize(
    ("placement", "silicon", "message"),
    [
        (placed("h100", degree=2), None, r"knows kernels of one GPU .* 2 chips were asked for; give --tensor-parallel 1"),
        (
            placed("h100", dtype="int8"),
            None,
            r"--dtype is int8; kernels were measured in bfloat16 and float16; give --step-times",
        ),
        (placed("h100", kv_dtype="float8"), None, r"--kv-dtype is float8.*; kernels were measured in bfloat16"),
        (placed("tpu-v5e"), None, r"chip tpu-v5e: the number of its SMs is not known"),
        (placed("h100", model=as_architecture("mixtral-8x7b")), None, r"has experts, whose kernels are not calibrated"),
        (placed("h100"), "none", r"--silicon is none and calibrated steps are made of kernels; leave it out"),
        (placed("h100"), "nowhere", r"nowhere"),
    ],
)
def test_bad_input(placement: Placement, silicon: str | None, message: str):
    with pytest.raises(UserError, match=message) as caught:
        step_times(placement, "calibrated", silicon)
    assert "\n" not in str(caught.value)
