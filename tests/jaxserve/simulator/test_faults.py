"""Faults on the virtual clock. Oracle: the times of a few steps by hand."""

from __future__ import annotations

import math

import pytest

from jaxserve.kv.paged import Paged
from jaxserve.load.served import Served
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.simulator.clients import ClosedLoop
from jaxserve.simulator.faults import Burst, Fault, Leave, Slow, Stall
from jaxserve.simulator.run import SimulationResult, simulate
from models.errors import UserError


def run(
    *faults: Fault, requests: list[Request] | None = None, clients: int = 0, rows: int = 4
) -> tuple[SimulationResult, list[Served]]:
    """Steps of 1 s."""
    found: list[Served] = []
    asked = [Request(0, range(3), 4)] if requests is None else requests
    source = ClosedLoop(clients, asked) if clients else asked
    policy, state = Continuous(Limits(rows)), State.of(Paged.of(99, 4))
    return simulate(policy, state, source, lambda plan: 1.0, faults=faults, served=found.append), found


def times(*faults: Fault) -> tuple[float, float]:
    """(first token, last token) of one request of 4 tokens, which takes 4 steps."""
    _, (answer,) = run(*faults)
    return answer.first, answer.last


def test_a_slow_step_by_its_number():
    assert times(Slow(3.0, step=2)) == (1.0, 6.0)
    assert times(Slow(0.5, step=0)) == (0.5, 3.5)
    assert times(Slow(3.0, step=4)) == (1.0, 4.0)  # there is none


def test_a_slow_step_by_its_time():
    """The first that begins at 1.5 s or later begins at 2 s; two at one time are two steps."""
    assert times(Slow(3.0, at=1.5)) == (1.0, 6.0)
    assert times(Slow(3.0, at=0.0)) == (3.0, 6.0)
    assert times(Slow(3.0, at=1.5), Slow(2.0, at=1.5)) == (1.0, 7.0)


def test_slow_steps_for_a_while():
    """Those that begin at 1 and at 2.5 s take 1.5 s; what follows begins at 4 s, when it is over."""
    assert times(Slow(1.5, at=0.5, until=2.6)) == (1.0, 5.0)
    assert times(Slow(1.5, at=0.5, until=2.5)) == (1.0, 4.5)  # the second one begins at 2.5 s
    assert times(Slow(2.0, at=1.0, until=1.1), Slow(3.0, at=1.0)) == (1.0, 9.0)


def test_a_stall():
    """In the middle of a step; between two it is the next one's; one that is over, or comes later, is nobody's."""
    assert times(Stall(0, 1.5, 10.0)) == (1.0, 14.0)
    assert times(Stall(0, 2.0, 10.0)) == (1.0, 14.0)
    assert times(Stall(0, 50.0, 10.0)) == (1.0, 4.0)
    assert times(Stall(0, 1.5, 0.2), Stall(0, 2.1, 0.2)) == (1.0, 4.4)
    late = [Request(0, range(3), 1, arrival=5.0)]
    _, (answer,) = run(Stall(0, 2.0, 4.0), requests=late)
    assert answer.first == 7.0  # of the 4 s there is 1 left
    _, (answer,) = run(Stall(0, 2.0, 3.0), requests=late)
    assert answer.first == 6.0


def test_a_burst():
    """Three requests more at 1.5 s, for which there are two places: they get the ids 1 to 3, and what came after them a later one."""
    requests = [Request(0, range(3), 4), Request(1, range(3), 1, arrival=1.6)]
    found, answers = run(Burst(1.5, 3, 5, 2), requests=requests, rows=3)
    by_id = {a.id: (a.arrival, a.prompt, a.tokens, a.end) for a in answers}
    assert by_id == {
        0: (0.0, 3, 4, 4.0),
        1: (1.5, 5, 2, 4.0),
        2: (1.5, 5, 2, 4.0),
        3: (1.5, 5, 2, 6.0),
        4: (1.6, 3, 1, 5.0),
    }
    assert found.ends == {"length": 5}


def test_a_burst_with_a_prefix_cache():
    """Its prompts are of tokens that nobody else has, so none is found."""
    found: list[int] = []

    class Looks(Observer):
        def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
            found.extend(start for id, start in zip(plan.ids, plan.starts, strict=True) if id in plan.admitted)

    requests = [Request(0, range(9), 4), Request(1, range(9), 1, arrival=8.0)]
    state = State.of(Paged.of(99, 4, prefix=True))
    simulate(Continuous(Limits(4)), state, requests, lambda plan: 1.0, faults=[Burst(4.0, 2, 9, 1)], watch=Looks())
    assert found == [0, 0, 0, 8]


def test_a_burst_among_clients_that_wait():
    """One client with 2 requests of 2 s, and a burst at 1 s which it does not wait for."""
    requests = [Request(7, range(3), 2), Request(9, range(3), 2)]
    _, answers = run(Burst(1.0, 2, 3, 1), requests=requests, clients=1)
    assert sorted((a.id, a.arrival, a.end) for a in answers) == [(0, 0.0, 2.0), (1, 1.0, 2.0), (2, 1.0, 2.0), (3, 2.0, 4.0)]


def test_clients_that_leave():
    """At 2.5 s; with its second token; one that has none yet; one that is over before."""
    assert [(a.end, a.tokens, a.reason) for a in run(Leave(0, at=2.5))[1]] == [(2.5, 2, "cancelled")]
    found, answers = run(Leave(0, tokens=2))
    assert [(a.end, a.last, a.tokens, a.reason) for a in answers] == [(2.0, 2.0, 2, "cancelled")]
    assert found.state.idle and found.plans == 2
    assert [(a.end, a.tokens) for a in run(Leave(0, at=0.0))[1]] == [(0.0, 0)]
    assert [(a.end, a.tokens, a.reason) for a in run(Leave(0, at=9.0), Leave(5, tokens=1))[1]] == [(4.0, 4, "length")]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Slow(2.0), "give either step or at, not both and not neither"),
        (lambda: Slow(2.0, step=1, at=1.0), "give either step or at"),
        (lambda: Slow(0.0, step=1), "factor is 0.0; it must be above 0"),
        (lambda: Slow(2.0, at=math.nan), "due at nan s"),
        (lambda: Slow(2.0, step=1, until=2.0), "slow steps from None to 2.0 s; give a time to begin with"),
        (lambda: Slow(2.0, at=2.0, until=2.0), "slow steps from 2.0 to 2.0 s"),
        (lambda: Stall(0, -1.0, 1.0), "due at -1.0 s; give a time from 0 on"),
        (lambda: Stall(0, 1.0, math.inf), "seconds is inf"),
        (lambda: Stall(-1, 1.0, 1.0), "worker -1"),
        (lambda: run(Stall(1, 1.0, 1.0)), "of worker 1, and the last one is worker 0"),
        (lambda: Burst(1.0, 0, 1, 1), "requests is 0"),
        (lambda: Burst(1.0, 1, 1, 0), "output is 0"),
        (lambda: Leave(0), "give either at or tokens"),
        (lambda: Leave(0, tokens=0), "after 0 tokens"),
    ],
)
def test_faults_that_can_not_be(make, said: str):
    with pytest.raises(UserError, match=said):
        make()
