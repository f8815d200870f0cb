"""Static batches. Oracle: the slot arithmetic of a batch that runs until its longest row ends."""

from __future__ import annotations

import pytest
from hypothesis import given

from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.occupancy import Occupancy
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.step_result import StepResult
from tests.jaxserve.scheduling.clock import Played, one_token, play
from tests.jaxserve.scheduling.laws import obeys
from tests.jaxserve.scheduling.workloads import Workload, many, workloads


class Meter(Observer):
    """Adds up how full batches were."""

    def __init__(self) -> None:
        self.occupancy = Occupancy()

    def updated(self, before: State, plan: Plan, outcome: StepResult, *rest: object) -> None:
        self.occupancy = self.occupancy.after(plan, outcome)


def batch(lengths: list[int], memory: object, rows: int = 4, multi_step: int = 1) -> tuple[Played, Occupancy]:
    meter = Meter()
    requests = [Request(i, (1,) * 5, length) for i, length in enumerate(lengths)]
    played = play(Static(Limits(rows=rows), multi_step), State.of(memory), requests, watch=meter)  # type: ignore[arg-type]
    return played, meter.occupancy


@pytest.mark.slow
@many
@given(load=workloads())
def test_laws(load: Workload):
    obeys(Static(load.limits, load.multi_step), load)


@pytest.mark.parametrize("memory", [Paged.of(100, 16), Slots.of(4, 300)])
@pytest.mark.parametrize(
    ("lengths", "slots", "useful", "padded", "share"),
    [([20, 50, 80, 200], 800, 350, 450, 0.5625), ([30, 60, 90, 120], 480, 300, 180, 0.375)],
)
def test_slots_are_locked_until_the_longest_ends(
    memory: object, lengths: list[int], slots: int, useful: int, padded: int, share: float
):
    """facts.md, section 6."""
    played, occupancy = batch(lengths, memory)
    assert (occupancy.slots, occupancy.useful, occupancy.padded, occupancy.padded_share) == (slots, useful, padded, share)
    assert occupancy.steps == max(lengths)
    assert all(plan.slots == 4 for _, plan in played.plans)
    assert {id: at for id, (at, _) in played.ended.items()} == dict(enumerate(map(float, lengths)))


def test_padded_slots_read_no_bytes():
    """facts.md, section 6: slots and bytes are two figures. Weights of 1000 B once a step; 2 B of KV for each token attended over.

    A row of prompt 5 that draws n tokens attends over 5, 6, .., 5 + n - 1 tokens. The same rows one by one read the same KV and have
    no padding at all, yet read the weights 350 times instead of 200.
    """
    context = sum(sum(range(5, 5 + n)) for n in (20, 50, 80, 200))
    _, together = batch([20, 50, 80, 200], Paged.of(100, 16))
    _, alone = batch([20, 50, 80, 200], Paged.of(100, 16), rows=1)
    assert together.bytes(1000, 2) == 200 * 1000 + 2 * context
    assert alone.padded == 0 and alone.bytes(1000, 2) == 350 * 1000 + 2 * context


def test_several_steps_a_plan_are_counted_as_steps():
    played, occupancy = batch([20, 50, 80, 200], Paged.of(100, 16), multi_step=8)
    _, single = batch([20, 50, 80, 200], Paged.of(100, 16))
    assert occupancy == single and len(played.plans) < 100
    assert {plan.steps for _, plan in played.plans} == {1, 8}


def test_an_early_end_within_several_steps_leaves_its_slot_empty():
    """Two rows over 4 steps; one draws its stop token second: 8 slots, 6 useful, over contexts 5+6+7+8 and 5+6."""
    plan = Plan(0, ids=(0, 1), starts=(4, 4), counts=(1, 1), draws=(4, 4), tables=((0,), (1,)), steps=4, slots=2)
    occupancy = Occupancy().after(plan, StepResult(((1, 1, 1, 1), (1, 0)), {1: "stop"}))
    assert occupancy == Occupancy(steps=4, slots=8, useful=6, context=26 + 11)
    assert Occupancy().padded_share == 0


def test_nobody_joins_a_batch_that_runs():
    requests = [Request(0, (1,), 3), Request(1, (1,), 6), Request(2, (1,), 2, arrival=1.5)]
    played = play(Static(Limits(rows=3)), State.of(Paged.of(20, 1)), requests, run=one_token)
    assert [plan.ids for _, plan in played.plans] == [(0, 1)] * 3 + [(1,)] * 3 + [(2,)] * 2
    assert [plan.slots for _, plan in played.plans] == [2] * 6 + [1] * 2


def test_a_batch_is_as_large_as_memory_admits_for_whole_lives():
    """Three requests of at most 4 + 5 - 1 = 8 tokens; 20 places hold two of them, though all three prompts would fit."""
    requests = [Request(i, (1,) * 4, 5) for i in range(3)]
    played = play(Static(Limits(rows=3)), State.of(Paged.of(20, 1)), requests)
    assert [plan.admitted for _, plan in played.plans if plan.admitted] == [(0, 1), (2,)]
    assert not any(plan.preempted for _, plan in played.plans)
