"""Iteration-level scheduling. Oracle: step counts by hand; random workloads against the laws."""

from __future__ import annotations

import pytest
from hypothesis import given

from jaxserve.kv.memory import Memory
from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from tests.jaxserve.scheduling.clock import play
from tests.jaxserve.scheduling.laws import obeys
from tests.jaxserve.scheduling.workloads import Workload, many, workloads


@pytest.mark.slow
@many
@given(load=workloads())
def test_laws(load: Workload):
    obeys(Continuous(load.limits, load.multi_step), load)


@pytest.mark.parametrize("memory", [Paged.of(100, 4), Slots.of(2, 100)])
def test_a_request_that_ends_at_step_20_frees_its_slot_for_step_21(memory: Memory):
    """facts.md, section 7. Steps count from 1; contiguous memory has exactly two slots, so the new row can only have the old one's."""
    requests = [Request(0, (1, 2), 20), Request(1, (1, 2), 60), Request(2, (1, 2), 5)]
    plans = [plan for _, plan in play(Continuous(Limits(rows=2)), State.of(memory), requests).plans]
    assert plans[19].final == (0,) and plans[19].ids == (0, 1)
    assert plans[20].admitted == (2,) and plans[20].ids == (1, 2)
    assert len(plans) == 60 and sum(len(plan.ids) for plan in plans) == 85, "no slot runs for nothing"


def test_a_prompt_is_run_whole_beside_those_that_decode():
    requests = [Request(0, range(7), 5), Request(1, range(30), 2, arrival=1.5)]
    plans = [plan for _, plan in play(Continuous(), State.of(Paged.of(100, 4)), requests).plans]
    assert [list(zip(plan.ids, plan.starts, plan.counts, plan.draws, strict=True)) for plan in plans] == [
        [(0, 0, 7, 1)],
        [(0, 7, 1, 1)],
        [(0, 8, 1, 1), (1, 0, 30, 1)],
        [(0, 9, 1, 1), (1, 30, 1, 1)],
        [(0, 10, 1, 1)],
    ]


def test_the_cap_on_prompt_tokens_bounds_a_step_and_lets_a_long_prompt_alone_through():
    requests = [Request(i, range(n), 1) for i, n in enumerate([6, 4, 1, 25, 3])]
    plans = [plan for _, plan in play(Continuous(Limits(prefill_tokens=10)), State.of(Paged.of(100, 1)), requests).plans]
    assert [plan.admitted for plan in plans] == [(0, 1), (2,), (3,), (4,)]


def test_the_first_that_does_not_fit_holds_up_those_behind_it():
    """Ten places: a prompt of 4 runs, one of 8 waits, and one of 1, which would fit, is not let past it."""
    requests = [Request(0, range(4), 3), Request(1, range(8), 1), Request(2, range(1), 1)]
    played = play(Continuous(), State.of(Paged.of(10, 1)), requests)
    assert [plan.admitted for _, plan in played.plans if plan.admitted] == [(0,), (1, 2)]


class TestSeveralStepsAPlan:
    """Multi-step decode: so many steps in one program, where that delays nobody."""

    def plans(self, requests: list[Request], memory: Memory, rows: int = 8) -> list[Plan]:
        return [plan for _, plan in play(Continuous(Limits(rows), multi_step=4), State.of(memory), requests).plans]

    def test_only_while_nobody_waits(self):
        requests = [Request(0, (1,), 6), Request(1, (1,), 9)]
        assert [plan.steps for plan in self.plans(requests, Paged.of(50, 1), rows=1)] == [1] * 6 + [1, 4, 4]

    def test_never_past_a_limit(self):
        """Nine tokens to draw: one with the prompt, twice four; seven: one, four, and then one by one."""
        assert [plan.steps for plan in self.plans([Request(0, (1,), 9)], Paged.of(50, 1))] == [1, 4, 4]
        assert [plan.steps for plan in self.plans([Request(0, (1,), 7)], Paged.of(50, 1))] == [1, 4, 1, 1]

    def test_never_at_the_price_of_memory(self):
        """Two rows of four tokens at most seven places: when four more places for each are not there, they go one by one."""
        requests = [Request(0, (1,), 6), Request(1, (1,), 6)]
        plans = self.plans(requests, Paged.of(12, 1))
        assert [plan.steps for plan in plans] == [1, 4, 1]
        plans = self.plans(requests, Paged.of(9, 1))
        assert plans[1].steps == 1 and plans[1].tables == ((0, 2), (1, 3)), "what was tried leaves no trace"

    def test_tables_hold_the_room_of_all_steps(self):
        plan = self.plans([Request(0, (1, 1), 9)], Paged.of(50, 2))[1]
        assert (plan.steps, plan.starts, plan.draws, plan.tables) == (4, (2,), (4,), ((0, 1, 2),))
        assert plan.moved == ((0, 1),)
