"""The figures of a run. Oracle: arithmetic by hand, and sums over the plans of random runs."""

from __future__ import annotations

import json

from hypothesis import given, settings
from rich.console import Console

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.token_counts import TokenCounts
from jaxserve.scheduling.transfer import Link
from jaxserve.steplog.summary import Summary
from tests.jaxserve.scheduling.clock import play
from tests.jaxserve.scheduling.laws import obeys
from tests.jaxserve.scheduling.runs import Run, runs
from tests.jaxserve.scheduling.workloads import many


def record(step: int, predicted: float | None, measured: float, host: float) -> StepRecord:
    """Of a program of 8 rows, 6 of them live."""
    return StepRecord(step, 0, "", ("decode 8",), 6, 2, 0, 6, 0, 6, 9, predicted, measured, host, 0.0)


def lines(summary: Summary) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(summary.table("virtual"))
    return capture.get()


def test_a_run_by_hand():
    """Steps of 5 tokens: 3 + 2, 1 + 2, then the second row decodes alone. Request 2 never fits, request 3 went before it came."""
    summary = Summary()
    requests = [Request(0, range(3), 2), Request(1, range(4), 3), Request(2, range(99), 1), Request(3, range(2), 1, 9.0)]
    play(Chunked(Limits(2), 5), State.of(Paged.of(4, 4)), requests, cancels=[(9.0, 3)], watch=summary)
    assert summary.to_json("virtual") == {
        "requests": 4,
        "refused": 1,
        "cancelled": 1,
        "admitted": 2,
        "preempted": 0,
        "expired": 0,
        "hand_offs": 0,
        "hand_off_bytes": 0,
        "hand_off_link_seconds": 0.0,
        "ended": {"length": 2},
        "steps": 4,
        "rows_mean": 1.5,
        "rows_most": 2,
        "tokens": {"prefill": 7, "decode": 3, "draft": 0, "drawn": 5},
        "pages_peak": [2],
        "pages": [4],
        "clocked": None,
    }
    text = lines(summary)
    assert "4, 1 refused, 0 expired, 1 cancelled" in text and "1.5, 2 at most" in text and "2 of 4" in text
    assert "simulated" not in text and "ms" not in text


def test_hand_offs_by_hand():
    """Two prompts of 4 tokens cross a link of 10 B/s with 100 B a token and 0.5 s of latency: 40.5 s each."""
    summary = Summary()
    policy = Disaggregated(Link(token_bytes=100, bandwidth=10, latency=0.5), Limits(2))
    play(policy, State.of(*[Paged.of(8, 4)] * 2), [Request(i, range(4), 3) for i in range(2)], watch=summary)
    found = summary.to_json("virtual")
    assert (found["hand_offs"], found["hand_off_bytes"], found["hand_off_link_seconds"]) == (2, 800, 81.0)
    text = lines(summary)
    assert "2, 800 B" in text and "hand-offs on the link, ms" in text and "81000.000" in text


def test_times_by_hand():
    """100 steps of 1 to 100 ms, each said to take 10 ms: half of them took 5.05 times that, 90 of them at most 9 times."""
    summary = Summary()
    for step in range(100):
        summary.stepped(record(step, 0.010, (step + 1) * 1e-3, 0.001 if step else 0.5))
    found = summary.to_json("monotonic")["clocked"]
    assert found.pop("ratio_p90") == 9.0 and abs(found.pop("ratio_median") - 5.05) < 1e-9
    assert abs(found.pop("measured_ms_median") - 50.5) < 1e-9
    assert found == {
        "witness": "measured",
        "steps": 100,
        "padded_share": 0.25,
        "predicted_steps": 100,
        "predicted_ms_median": 10.0,
        "host_ms_median": 1.0,
        "host_ms_p99": 1.0,
    }
    text = lines(summary)
    assert "step, simulated / analytical: median, P90" in text and "5.050, 9.000 (n = 100)" in text and "too few" not in text


def test_few_steps_and_none_predicted():
    summary = Summary()
    for step in range(99):
        summary.stepped(record(step, None, 0.002, 0.5 if step == 7 else 0.001))
    found = summary.to_json("virtual")["clocked"]
    assert (found["witness"], found["ratio_median"], found["predicted_ms_median"]) == ("simulated", None, None)
    assert found["host_ms_p99"] == 500.0
    assert "500.000 (n = 99, too few for P99: the most)" in lines(summary) and "analytical" not in lines(summary)


def test_nothing_happened():
    summary = Summary()
    play(Chunked(), State.of(Paged.of(4, 4)), [], watch=summary)
    found = summary.to_json("virtual")
    assert (found["steps"], found["rows_mean"], found["clocked"], found["pages_peak"]) == (0, None, None, [0])
    json.dumps(found, allow_nan=False)
    assert "none" in lines(summary)


class Sums(Observer):
    """Peaks of memory, and plans with the state that they came with."""

    def __init__(self, workers: int) -> None:
        self.kinds, self.peaks = TokenCounts(), [0] * workers

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        kinds = TokenCounts.of(plan, after)
        self.kinds = TokenCounts(*(a + b for a, b in zip(self.kinds, kinds, strict=True)))
        self.peaks = [max(peak, worker.memory.in_use) for peak, worker in zip(self.peaks, after.workers, strict=True)]


@settings(many, max_examples=25)
@given(run=runs())
def test_sums_of_any_run(run: Run):
    summary, sums = Summary(), Sums(run.workers)
    played = obeys(run.policy, run.load, memories=run.workers, log=Observers(summary, sums))
    found, plans = summary.to_json("virtual"), [plan for _, plan in played.plans]
    for name in ("admitted", "preempted", "expired", "hand_offs"):
        assert found[name] == sum(len(getattr(plan, name)) for plan in plans)
    assert found["steps"] == sum(bool(plan.ids) for plan in plans)
    assert sum(found["ended"].values()) == len(played.ended) and found["refused"] == len(played.refused)
    assert found["hand_off_bytes"] == sum(move.bytes for plan in plans for move in plan.hand_offs)
    tokens = found["tokens"]
    assert (tokens["prefill"], tokens["decode"], tokens["draft"]) == sums.kinds
    assert sum(sums.kinds) == sum(plan.tokens * plan.steps for plan in plans)
    assert all(peak >= least for peak, least in zip(found["pages_peak"], sums.peaks, strict=True))
