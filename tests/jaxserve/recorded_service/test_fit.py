"""Fitting a service's steps. Oracle: a simulated service, whose parameters are known."""

from __future__ import annotations

import copy

import pytest

from jaxserve.predict.analytical import Analytical
from jaxserve.recorded_service.deployed import Deployed, deployed
from jaxserve.recorded_service.fit import Seen, fit
from jaxserve.recorded_service.play import play
from jaxserve.recorded_service.recorded import Recorded, Served
from jaxserve.recorded_service.step_time import Counted, Parameters, StepTime
from models.errors import UserError
from tests.jaxserve.recorded_service.services import META, asked

TRUTH = Parameters(bandwidth=0.7, peak=0.55)


@pytest.fixture(scope="module")
def made() -> tuple[Deployed, Counted, list[Served]]:
    """60 requests to a service whose steps take just what two parameters say."""
    service = deployed(Recorded("x", (), copy.deepcopy(META), {}))
    counted = Counted(Analytical(service.architecture, service.chip))
    return service, counted, play(service, asked(60), StepTime(counted, TRUTH))


def test_it_finds_what_made_the_times(made: tuple[Deployed, Counted, list[Served]]):
    service, counted, requests = made
    rounds: list[int] = []
    found = fit(service, counted, requests, 40, done=lambda: rounds.append(1))
    for name in Parameters._fields:
        assert getattr(found.parameters, name) == pytest.approx(getattr(TRUTH, name), rel=0.02), name
        assert getattr(found.errors, name) < 0.05
    assert found.residual < 0.01 and 1 < found.rounds <= len(rounds) and found.moments == 80
    again = play(service, requests, StepTime(counted, found.parameters))
    assert [r.last for r in again[40:]] == pytest.approx([r.last for r in requests[40:]], rel=0.01)


def test_later_times_are_not_looked_at(made: tuple[Deployed, Counted, list[Served]]):
    service, counted, requests = made
    nan = float("nan")
    blind = [*requests[:40], *(r._replace(scheduled=nan, first=nan, last=nan) for r in requests[40:])]
    assert fit(service, counted, blind, 40) == fit(service, counted, requests, 40)


def test_too_few(made: tuple[Deployed, Counted, list[Served]]):
    service, counted, requests = made
    with pytest.raises(UserError, match=r"--first is 5; fitting takes 20 requests to 60"):
        fit(service, counted, requests, 5)
    with pytest.raises(UserError, match=r"--first is 61"):
        fit(service, counted, requests, 61)


def test_what_the_data_can_not_tell_is_refused():
    """Prompts of one token, one at a time and with few to follow: nearly nothing is multiplied, so nobody can say how fast."""
    meta = copy.deepcopy(META)
    service = deployed(Recorded("x", (), meta, {}))
    counted = Counted(Analytical(service.architecture, service.chip))
    lone = [r._replace(prompt=1, output=4, queued=10.0 * i) for i, r in enumerate(asked(30))]
    with pytest.raises(UserError, match="say nothing of"):
        fit(service, counted, play(service, lone, StepTime(counted, TRUTH)), 30)


def test_steps_between_moments(made: tuple[Deployed, Counted, list[Served]]):
    """The sum of the steps between a request's first and last token is the time between them, for the simulation was busy all along."""
    service, counted, requests = made
    seen, parameters = Seen(), TRUTH
    took: list[float] = []
    again = play(
        service, requests, StepTime(counted, parameters, lambda work: took.append(float(parameters.seconds(work)))), watch=seen
    )
    for i, request in enumerate(again):
        assert sum(took[seen.first[i] : seen.last[i]]) == pytest.approx(request.last - request.first)
        assert sum(took[seen.admitted[i] : seen.first[i]]) - seen.elapsed[i] == pytest.approx(request.first - request.scheduled)
