"""Plans and records of an engine's steps. Oracle: the run that was watched, against its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxserve.calibration.engine_steps import EngineSteps, logged_steps, serve
from jaxserve.programs.buckets import Buckets
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observers
from jaxserve.steplog.writer import StepLog
from models.errors import UserError
from tests.jaxserve.engines import PLAIN_KIT, engine
from tests.jaxserve.steplogs import small_log


def test_a_log_holds_the_steps_that_were_watched(tmp_path: Path):
    path, watch, ended = tmp_path / "steps.jsonl", EngineSteps(), list[int]()
    with StepLog(path) as log:
        served = engine(Continuous(Limits(4)), PLAIN_KIT, books=Observers(watch, log))
        serve(served, 5, ended.append)
    assert sum(ended) == 5 and len(watch.steps) == len(served.records) > 5
    assert [record for _, record in watch.steps] == list(served.records)
    assert all(plan.step == record.step and len(plan.ids) == record.rows for plan, record in watch.steps)
    found = logged_steps(path, PLAIN_KIT.ladder)
    assert [(plan.digest, record) for plan, record in found] == [(plan.digest, record) for plan, record in watch.steps]
    with pytest.raises(UserError, match=r"step \d+ ran \['.*'\], where these settings run"):
        logged_steps(path, Buckets((1, 2, 3), PLAIN_KIT.ladder.widths, (1, 4), PLAIN_KIT.ladder.page))


def test_a_simulation_took_no_time(tmp_path: Path):
    with pytest.raises(UserError, match="no step in it was timed"):
        logged_steps(small_log(tmp_path / "log.jsonl"), PLAIN_KIT.ladder)
