"""Steps and the host between them. Oracle: times by hand."""

from __future__ import annotations

import math

import pytest

from jaxserve.kv.paged import Paged
from jaxserve.load.served import Served
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.simulator.pace import Pace
from jaxserve.simulator.run import simulate
from models.errors import UserError


def run(pace: Pace, requests: list[Request], ahead: int = 0) -> list[Served]:
    found: list[Served] = []
    policy = Continuous(Limits(4, ahead=ahead))
    simulate(policy, State.of(Paged.of(99, 4)), requests, pace, served=found.append)
    return found


def test_the_host_comes_after_what_happens():
    """Steps of 1 s after a gap of 0.25 s each. What comes within a gap runs along: at 0.2 s or at 1.3 s, but not at 1.6 s."""
    pace = Pace(lambda plan: 1.0, 0.25)
    first, second = run(pace, [Request(0, range(3), 2), Request(1, range(3), 2, arrival=0.2)])
    assert (first.first, first.last, first.admitted) == (1.25, 2.5, 0.25)
    assert (second.first, second.last, second.admitted) == (1.25, 2.5, 0.25)
    first, second = run(pace, [Request(0, range(3), 2), Request(1, range(3), 2, arrival=1.3)])
    assert (first.first, first.last) == (1.25, 2.5) and (second.admitted, second.first, second.last) == (1.5, 2.5, 3.75)
    first, second = run(pace, [Request(0, range(3), 2), Request(1, range(3), 2, arrival=1.6)])
    assert (first.first, first.last) == (1.25, 2.5) and (second.admitted, second.first, second.last) == (2.75, 3.75, 5.0)


def test_planning_ahead_hides_the_host():
    """The second of 4 steps is planned while the first runs, so the device never waits: 0.25 s once, and then 4 steps."""
    (answer,) = run(Pace(lambda plan: 1.0, 0.25), [Request(0, range(3), 4)], ahead=1)
    assert (answer.first, answer.last) == (1.25, 4.25)
    (answer,) = run(Pace(lambda plan: 1.0, 0.25), [Request(0, range(3), 4)])
    assert (answer.first, answer.last) == (1.25, 5.0)


@pytest.mark.parametrize("gap", [-0.1, math.nan, math.inf])
def test_gaps_that_can_not_be(gap: float):
    with pytest.raises(UserError, match="the host's gap is"):
        Pace(lambda plan: 1.0, gap)
