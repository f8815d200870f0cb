"""Clients on the virtual clock. Oracles: times by hand; a closed loop can't have more requests in the system than clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.kv.paged import Paged
from jaxserve.load.served import Served
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.simulator.clients import ClosedLoop
from jaxserve.simulator.run import simulate
from models.errors import UserError


def asked(count: int, output: int = 2, **more) -> Iterator[Request]:
    for id in range(count):
        yield Request(id, range(3), output, **more)


def answers(clients: ClosedLoop, rows: int = 8, **more) -> list[Served]:
    found: list[Served] = []
    simulate(Continuous(Limits(rows)), State.of(Paged.of(99, 4)), clients, lambda plan: 1.0, served=found.append, **more)
    return found


def test_a_client_asks_again_when_its_answer_is_over():
    """Steps of 1 s, answers of 2 tokens, half a second to think: the client asks every 2.5 s."""
    found = answers(ClosedLoop(1, asked(3), think=0.5))
    assert [(a.arrival, a.first, a.end) for a in found] == [(0.0, 1.0, 2.0), (2.5, 3.5, 4.5), (5.0, 6.0, 7.0)]


def test_what_an_answer_leads_to_is_in_the_very_next_plan():
    """Without a pause both clients' next requests run from the moment at which their answers end: 3 rounds of 2 s."""
    found = answers(ClosedLoop(2, asked(6)))
    assert [(a.id, a.arrival, a.end) for a in found] == [
        (0, 0.0, 2.0),
        (1, 0.0, 2.0),
        (2, 2.0, 4.0),
        (3, 2.0, 4.0),
        (4, 4.0, 6.0),
        (5, 4.0, 6.0),
    ]


def test_all_samples_are_waited_for_and_deadlines_move_along():
    """Samples of 2 tokens each; the split costs the second sample a step of its own start. The next request comes after both."""
    requests = [Request(0, range(3), 2, samples=2), Request(2, range(3), 2, arrival=100.0, deadline=101.0)]
    found = answers(ClosedLoop(1, requests))
    last = max(a.end for a in found if a.id < 2)
    assert len(found) == 3 and found[-1].arrival == last and found[-1].reason == "length"
    (late,) = [
        a for a in answers(ClosedLoop(2, [Request(0, range(3), 9), Request(1, range(3), 2, 50.0, deadline=51.5)]), 1) if a.id
    ]
    assert (late.arrival, late.end, late.reason) == (0.0, 1.5, "expired")


def test_those_who_are_refused_ask_on():
    """A request that is too long for the pool ends at once; its client asks the next one at the same moment."""
    requests = [Request(0, range(3), 2), Request(1, range(500), 2), Request(2, range(3), 2)]
    found = answers(ClosedLoop(1, requests))
    assert [(a.id, a.arrival, a.reason) for a in found] == [(0, 0.0, "length"), (1, 2.0, "refused"), (2, 2.0, "length")]


class Crowd(Observer):
    """The most requests that were in the system at once."""

    def __init__(self) -> None:
        self.most = 0

    def submitted(self, state: State, *rest) -> None:
        self.most = max(self.most, len(state.waiting) + sum(1 for _ in state.rows))


@given(clients=st.integers(1, 6), count=st.integers(1, 12), rows=st.integers(1, 4), output=st.integers(1, 5))
def test_never_more_than_there_are_clients(clients: int, count: int, rows: int, output: int):
    crowd = Crowd()
    found = answers(ClosedLoop(clients, asked(count, output)), rows, watch=crowd)
    assert sorted(a.id for a in found) == list(range(count))
    assert crowd.most == min(clients, count)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"clients": 0}, "a closed loop of 0 clients"),
        ({"clients": 1, "think": -1.0}, "the clients think for -1.0 s"),
    ],
)
def test_loops_that_can_not_be(options: dict, said: str):
    with pytest.raises(UserError, match=said):
        ClosedLoop(requests=asked(1), **options)
