"""What steps should cost. Oracle: `costmodel.step_cost`, asked for every step of a life that is known by heart."""

from __future__ import annotations

import pytest

from costmodel.analytical.step import step_cost
from costmodel.hardware.chips import find_chip
from jaxserve.kv.paged import Paged
from jaxserve.predict.analytical import Analytical
from jaxserve.predict.step_costs import StepCosts
from jaxserve.programs.buckets import Buckets
from jaxserve.reporting.virtual_steps import VirtualSteps
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observers
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.simulator.run import simulate

MODEL, CHIP = "llama-3-8b", "h100"


def played(requests: list[Request], ladder: Buckets | None = None, ahead: int = 0) -> tuple[StepCosts, VirtualSteps]:
    predictor = Analytical(MODEL, CHIP, ladder=ladder)
    costs, steps = StepCosts(predictor, find_chip(CHIP), "bfloat16"), VirtualSteps(ladder, predictor)
    simulate(
        Continuous(Limits(rows=8, ahead=ahead)), State.of(Paged.of(100, 16)), requests, predictor, watch=Observers(costs, steps)
    )
    return costs, steps


@pytest.mark.parametrize("ahead", [0, 1])
def test_one_request_costs_what_its_steps_cost(ahead: int):
    """A prompt of 100 tokens, and four steps after it with 101 to 104 in the cache; when a step was planned doesn't lengthen it."""
    costs, steps = played([Request(0, range(100), 5)], ahead=ahead)
    prefill, decode = costs.to_json()["steps"]
    lives = [step_cost(MODEL, kind="prefill", batch=1, context=100, chip=CHIP)]
    lives += [step_cost(MODEL, batch=1, context=context, chip=CHIP) for context in (101, 102, 103, 104)]
    for entry, name, mine in ((prefill, "prefill, without padding", lives[:1]), (decode, "decode, without padding", lives[1:])):
        assert entry["programs"] == [name] and entry["steps"] == len(mine)
        assert entry["bytes"] == pytest.approx(sum(cost.bytes for cost in mine), rel=1e-6)
        assert entry["flops"] == pytest.approx(sum(cost.flops for cost in mine), rel=1e-6)
    assert [step.measured for step in steps.steps] == pytest.approx([cost.seconds() for cost in lives], rel=1e-6)
    assert [(step.prefill, step.decode, step.drawn) for step in steps.steps] == [(100, 0, 1)] + 4 * [(0, 1, 1)]
    assert [step.predicted for step in steps.steps] == pytest.approx([step.measured for step in steps.steps])
    assert steps.steps[-1].at == pytest.approx(sum(cost.seconds() for cost in lives))


def test_programs_are_told_apart_and_their_padding_is_counted():
    """Three rows in a decode of 4, and their prompts in a prefill of 4x64: a row and a piece are padding each time."""
    ladder = Buckets((4,), (16,), (4, 64), 16)
    costs, steps = played([Request(id, range(64 * id, 64 * (id + 1)), 3) for id in range(3)], ladder)
    found = {tuple(entry["programs"]): entry for entry in costs.to_json()["steps"]}
    assert {names: entry["steps"] for names, entry in found.items()} == {("prefill 4x64",): 1, ("decode 4",): 2}
    decodes = [step_cost(MODEL, batch=3, context=context, padded_batch=4, chip=CHIP) for context in (65, 66)]
    assert found["decode 4",]["bytes"] == pytest.approx(sum(cost.bytes for cost in decodes), rel=1e-6)
    assert found["decode 4",]["flops"] == pytest.approx(sum(cost.flops for cost in decodes), rel=1e-6)
    assert [(step.programs, step.padded) for step in steps.steps] == [(("prefill 4x64",), 1)] + 2 * [(("decode 4",), 1)]
    assert [step.pages for step in steps.steps] == [12, 15, 15]  # 64 tokens are 4 pages, 65 and 66 are 5


def test_the_chip_stands_beside():
    chip = played([Request(0, range(10), 1)])[0].to_json()["chip"]
    assert (chip["bandwidth"], chip["peak"], chip["dtype"]) == (3.35e12, 989e12, "bfloat16")
