"""Two parameters over what is counted. Oracles: `step_cost` itself, whose bytes and FLOPs the parts add up to; hand arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.analytical.step import step_cost
from costmodel.hardware.chips import find_chip
from jaxserve.predict.analytical import Analytical
from jaxserve.recorded_service.step_time import MEANINGS, Counted, Parameters, StepTime, Work
from jaxserve.scheduling.plan import Plan

CHIP = find_chip("rtx-4090")
DECODE = Plan(0, ids=(0, 1, 2), starts=(99, 99, 99), counts=(1, 1, 1), draws=(1, 1, 1))
MIXED = Plan(0, ids=(0, 1), starts=(99, 0), counts=(1, 500), draws=(1, 0))


@pytest.fixture(scope="module")
def counted() -> Counted:
    return Counted(Analytical("llama-3-8b", CHIP))


def test_the_parts_add_up(counted: Counted):
    """3 rows of 100 tokens: bytes over bandwidth and FLOPs over peak of the whole step. K and V of a token are 128 KiB."""
    work = counted(DECODE)
    cost = step_cost("llama-3-8b", batch=3, context=100, chip=CHIP)
    assert work.weights + work.cache == pytest.approx(float(cost.memory_seconds()), rel=1e-9)
    assert work.products == pytest.approx(float(cost.compute_seconds()), rel=1e-9)
    assert work.cache == pytest.approx((3 * 100 + 3) * 2**17 / 1008e9, rel=0.02)


def test_by_hand():
    parameters = Parameters(bandwidth=0.5, peak=0.25)
    assert parameters.seconds(Work(weights=2.0, products=0.5, cache=4.0)) == 4.0 + 2.0 + 4.0
    assert set(MEANINGS) == set(Parameters._fields)


def test_one_step_and_many(counted: Counted):
    parameters, seen = Parameters(0.9, 0.7), list[Work]()
    steps = StepTime(counted, parameters, seen.append)
    one = [steps(plan) for plan in (DECODE, MIXED)]
    assert seen == [counted(DECODE), counted(MIXED)]
    many = parameters.seconds(Work(*(np.array(column) for column in zip(*seen, strict=True))))
    assert one == pytest.approx(many.tolist(), rel=1e-12)
    assert one[1] > one[0]
