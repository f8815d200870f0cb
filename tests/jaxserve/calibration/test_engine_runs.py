"""An engine's runs between rounds. Oracles: the schedule by hand, and the engine's own records."""

from __future__ import annotations

from typing import Any

import pytest

from jaxserve.calibration.engine_runs import RUNS, WARM, EngineRuns, Steps, sizes, stretches
from jaxserve.calibration.engine_steps import EngineSteps
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from tests.jaxserve.engines import PLAIN_KIT, engine


def test_pairs_halve():
    assert sizes(36) == [36, 36, 18, 18, 9, 9] and sizes(1) == [1] * RUNS


@pytest.mark.parametrize(("rounds", "after"), [(12, [1, 3, 5, 7, 9, 11]), (3, [0, 0, 1, 1, 2, 2])])
def test_runs_are_spread_over_the_rounds(rounds: int, after: list[int]):
    watch, ended = EngineSteps(), list[int]()
    served = engine(Continuous(Limits(4)), PLAIN_KIT, books=watch)
    runs = EngineRuns(served, watch, rounds, 2, ended.append)
    counts = []
    for index in range(rounds):
        runs(index)
        counts.append(len(runs.runs))
    assert counts == [sum(due <= index for due in after) for index in range(rounds)]
    assert sum(ended) == sum(sizes(2))
    records = [record for run in runs.runs for _, record in run]
    assert len(records) == len(watch.steps) - RUNS * WARM and records[0] == watch.steps[WARM][1]


def test_every_second_run_judges():
    steps: list[list[Any]] = [[("a", 0)], [("b", 0), ("c", 0)], [("d", 0)], [("e", 0)]]
    assert Steps.of(steps) == ((("a", 0), ("d", 0)), (0, 2))
    assert Steps.of(steps, 1) == ((("b", 0), ("c", 0), ("e", 0)), (1, 1, 3))


def test_a_log_is_cut_into_stretches():
    steps: list[Any] = list(range(15))
    found = stretches(steps)
    assert len(found) == RUNS and [step for run in found for step in run] == steps
    assert {len(run) for run in found} == {2, 3}


def test_which_steps_decode():
    plans = [
        Plan(0, ids=(0, 1), starts=(9, 3), counts=(1, 1), draws=(1, 1)),
        Plan(1, ids=(0,), starts=(0,), counts=(5,), draws=(1,)),
    ]
    assert Steps(tuple((plan, None) for plan in plans), (0, 0)).decodes.tolist() == [True, False]  # type: ignore[misc]
