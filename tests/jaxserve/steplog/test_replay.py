"""Runs that were logged are run again. Oracle: the plans that the first run made, kept by the test; and logs that were tampered with."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.simulator.run import simulate
from jaxserve.steplog.replay import Replay, replay
from jaxserve.steplog.writer import StepLog
from models.errors import UserError
from tests.jaxserve.scheduling.clock import Played
from tests.jaxserve.scheduling.laws import obeys
from tests.jaxserve.scheduling.runs import Run, runs
from tests.jaxserve.scheduling.workloads import many
from tests.jaxserve.steplogs import altered, numbers, refusal, small_log, timed_log, without


class Kept(Observer):
    """All that a run shows."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.states: list[State] = []
        self.ends: list[End] = []
        self.refused: list[str] = []
        self.records: list[StepRecord] = []

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        self.states.append(state)
        if refused is not None:
            self.refused.append(str(refused))

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if not plan.idle:
            self.plans.append(plan)
            self.states.append(after)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self.states.append(after)
        self.ends += ends

    def stepped(self, record: StepRecord) -> None:
        self.records.append(record)


def logged(run: Run, path: Path) -> Played:
    """Play a run, under the eyes of the law, and write its log."""
    with StepLog(path, "virtual") as log:
        return obeys(run.policy, run.load, memories=run.workers, log=log)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one log after another."""
    return tmp_path_factory.mktemp("rerun") / "steps.jsonl"


def reruns(path: Path, examples: int) -> Counter[str]:
    """Random runs of every policy on every memory: in how many of them what happened."""
    seen: Counter[str] = Counter()

    @settings(many, max_examples=examples)
    @given(run=runs())
    def one(run: Run) -> None:
        played, kept = logged(run, path), Kept()
        found = replay(path, kept)
        assert (found.difference, found.cut) == (None, None)
        assert [plan.digest for plan in kept.plans] == [plan.digest for _, plan in played.plans]
        assert kept.plans == [plan for _, plan in played.plans]
        assert kept.refused == [str(error) for error in played.refused.values()]
        assert {end.id: end.reason for end in kept.ends} == {id: reason for id, (_, reason) in played.ended.items()}
        for name in ("preempted", "expired", "hand_offs", "copies", "forking", "verifies"):
            seen[name] += any(getattr(plan, name) for plan in kept.plans)
        seen["several steps"] += any(plan.steps > 1 for plan in kept.plans)
        seen["reuse"] += any(plan.starts[plan.ids.index(id)] for plan in kept.plans for id in plan.admitted)
        seen["refused"] += bool(kept.refused)
        seen["cancelled"] += '"cancelled"' in path.read_text()
        seen["plans without work"] += found.plans > len(kept.plans)
        seen[type(run.policy).__name__ + " on " + run.load.kind] += 1

    one()
    return seen


def test_hashes_are_equal(path: Path):
    reruns(path, 50)


@pytest.mark.slow
def test_hashes_are_equal_in_many_runs(path: Path):
    """And nothing that can happen is missing in them."""
    seen = reruns(path, 1000)
    assert len(seen) == 11 + 5 * 3 and all(seen.values()), seen


@settings(many, max_examples=25)
@given(run=runs(), data=st.data())
def test_a_changed_plan_is_found_where_it_stands(path: Path, run: Run, data: st.DataObject):
    logged(run, path)
    plans = numbers(path, "planned")
    if not plans:
        return
    at = data.draw(st.integers(0, len(plans) - 1))
    line = json.loads(path.read_text().splitlines()[plans[at] - 1])
    digest = f"{int(line['digest'], 16) ^ 1 << data.draw(st.integers(0, 127)):032x}"
    change = data.draw(st.sampled_from([{"digest": digest}, {"slots": line["slots"] + 1}, {"admitted": [77]}]))
    altered(path, plans[at], **change)
    found = replay(path, Observer())
    assert found.difference is not None
    assert (found.difference.line, found.plans, found.difference.what) == (plans[at], at, f"plan {line['step']}")


@settings(many, max_examples=25)
@given(run=runs())
def test_a_simulation_writes_the_same_log_each_time_and_it_replays(path: Path, run: Run):
    """Simulator and engine drive the scheduler that the log watches, so their logs are of one kind."""
    texts = []
    for _ in range(2):
        with StepLog(path, "virtual") as log:
            state = State.of(*[run.load.memory() for _ in range(run.workers)])
            simulate(run.policy, state, run.load.requests, lambda plan: 0.25, cancels=run.load.cancels, watch=log)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]
    kept = Kept()
    found = replay(path, kept)
    assert (found.header.clock, found.difference, found.plans >= len(kept.plans)) == ("virtual", None, True)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_log(tmp_path / "steps.jsonl")


def test_both_plans_are_shown(small: Path):
    """The replayed one, and the logged one with whole tables, which the log tells in parts."""
    text, kept = small.read_text(), Kept()
    assert replay(small, kept).difference is None
    for at, number in enumerate(numbers(small, "planned")):
        small.write_text(text)
        altered(small, number, digest="0" * 32)
        found = replay(small, Observer()).difference
        assert found is not None
        assert found.replayed == f"digest {kept.plans[at].digest}\n{kept.plans[at]}"
        assert found.logged.startswith(f"digest {'0' * 32}, but what the line says has digest {kept.plans[at].digest}, so it")
        assert found.logged.endswith(f"\n{kept.plans[at]}")


@pytest.mark.parametrize(
    ("event", "change"),
    [
        ("folded", {"ended": {"0": "stop"}}),  # an end too many
        ("folded", {"ends": [{"id": 0, "reason": "stop"}]}),
        ("folded", {"drafts": {"0": 2}}),  # a plan that verifies follows
        ("submitted", {"prompt": 4}),
        ("submitted", {"limit": 3}),
        ("submitted", {"limit": 300}),  # it would have been refused
        ("submitted", {"refused": "too many"}),
    ],
)
def test_a_changed_story_is_found(small: Path, event: str, change: dict[str, Any]):
    """In the first line of its kind."""
    altered(small, numbers(small, event)[0], **change)
    assert replay(small, Observer()).difference is not None


def test_another_policy_decides_otherwise(small: Path):
    header = json.loads(small.read_text().splitlines()[0])
    altered(small, 1, policy=header["policy"] | {"budget": 4})
    found = replay(small, Observer())
    assert found.difference is not None and found.difference.what.startswith("plan ")


def test_a_missing_outcome_is_found(small: Path):
    """Without it no further step can be planned."""
    without(small, numbers(small, "folded")[1])
    found = replay(small, Observer()).difference
    assert found is not None and (found.line, found.what) == (numbers(small, "planned")[2], "plan 2")


def test_a_missing_plan_is_found(small: Path):
    without(small, numbers(small, "planned")[1])
    line = numbers(small, "folded")[1]
    says = (
        f"line {line} of {small}: the outcome of step 1 on worker 0, where [] are under way; a line is missing or out of place"
    )
    assert refusal(small) == says


def test_an_outcome_that_does_not_fit_is_named(small: Path):
    number = numbers(small, "folded")[0]
    altered(small, number, counts=[5])
    assert f"line {number} of {small}: the outcome of step 0 can't be: plan 0 draws up to 1 tokens" in refusal(small)


def test_what_steps_took_comes_through(tmp_path: Path):
    kept = Kept()
    assert replay(timed_log(tmp_path / "steps.jsonl"), kept).equal
    assert [record.programs for record in kept.records] == [(f"step {i}",) for i in range(len(kept.records))]
    assert [record.measured for record in kept.records[:3]] == [0.5, 1.5, 2.5]


def test_progress_comes_to_the_size_of_the_file(small: Path):
    sizes: list[int] = []
    assert isinstance(replay(small, Observer(), sizes.append), Replay)
    assert sum(sizes) == small.stat().st_size
