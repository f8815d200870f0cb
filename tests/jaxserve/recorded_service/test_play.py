"""A service in simulation. Oracle: times by hand, with steps of one second."""

from __future__ import annotations

import copy

import pytest

from jaxserve.recorded_service.deployed import deployed
from jaxserve.recorded_service.play import play
from jaxserve.recorded_service.recorded import Recorded, Served
from models.errors import UserError
from tests.jaxserve.recorded_service.services import META

NAN = float("nan")


def service(**engine):
    meta = copy.deepcopy(META)
    meta["engine_kwargs"] |= engine
    return deployed(Recorded("x", (), meta, {}))


def test_times_by_hand():
    """512 tokens a step, one step planned ahead. At 0 s: 600 and 300 tokens, answers of 2 and 1. Step 1 runs 512, step 2, planned at
    once, the other 88 and all 300: both first tokens at 2 s, the second of the first request at 3 s. A third comes at 2.5 s, is planned at
    once and runs from 3 s on."""
    asked = [
        Served("a", 600, 2, 0.0, NAN, NAN, NAN),
        Served("b", 300, 1, 0.0, NAN, NAN, NAN),
        Served("c", 9, 1, 2.5, NAN, NAN, NAN),
    ]
    done = []
    found = play(service(), asked, lambda plan: 1.0, done=lambda: done.append(1))
    assert found == [
        Served("a", 600, 2, 0.0, 0.0, 2.0, 3.0),
        Served("b", 300, 1, 0.0, 0.0, 2.0, 2.0),
        Served("c", 9, 1, 2.5, 2.5, 4.0, 4.0),
    ]
    assert len(done) == 3


def test_what_it_could_not_have_served():
    with pytest.raises(UserError, match="request a of 20000 and 2 tokens is refused: the pool holds 11200 tokens"):
        play(service(), [Served("a", 20_000, 2, 0.0, NAN, NAN, NAN)], lambda plan: 1.0)
