"""A plan is a value: it prints, its digest is the same everywhere, and a run can be replayed from what went in.

Oracles: the same run in a second Python process with another hash seed; a list of single changes, each of which must show.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.admission import cancel, submit
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import HandOff, Plan, Task
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult, update
from tests.jaxserve.scheduling.clock import play
from tests.jaxserve.scheduling.toy import Device, Toy

MOVE = HandOff(4, 0, 1, ((3,), (2,)), 0, 5, 500, 0.25)
PLAN = Plan(
    step=3,
    worker=0,
    ids=(7, 9),
    starts=(20, 0),
    counts=(1, 4),
    draws=(1, 0),
    tables=((5, 6), (8,)),
    moved=((0, 1), (1, 0)),
    copies=((4, 6),),
    slots=2,
    final=(7,),
    forking=(9,),
    admitted=(9,),
    preempted=(2,),
    expired=(11,),
    hand_offs=(MOVE,),
    wake=7.5,
)


def test_it_prints():
    assert list(PLAN.rows) == [Task(7, 20, 1, 1, (5, 6)), Task(9, 0, 4, 0, (8,))]
    assert (PLAN.tokens, PLAN.idle, PLAN.verifies, Plan(0).idle) == (5, False, False, True)
    assert str(PLAN).splitlines() == [
        "step 3 on worker 0: 2 rows in 2 slots, 5 tokens",
        "  admitted: 9",
        "  preempted: 2",
        "  expired: 11",
        "  final: 7",
        "  forking: 9",
        "  copies: (4, 6)",
        "  row 4 moves from worker 0 to 1: 500 B in 0.250000 s",
        "  row 7: tokens 20 to 20, draws 1, in [5, 6]",
        "  row 9: tokens 0 to 3, draws 0, in [8]",
    ]
    assert str(dataclasses.replace(PLAN, steps=4)).startswith("step 3 on worker 0: 2 rows in 2 slots, 5 tokens, 4 times\n")


@pytest.mark.parametrize(
    "change",
    [
        {"step": 4},
        {"worker": 1},
        {"ids": (7, 8)},
        {"starts": (21, 0)},
        {"counts": (1, 5)},
        {"draws": (1, 1)},
        {"tables": ((5, 7), (8,))},
        {"tables": ((5, 6), (1,))},
        {"moved": ((0, 0), (1, 0))},
        {"moved": ((1, 0),)},
        {"steps": 2},
        {"copies": ((6, 4),)},
        {"copies": ()},
        {"slots": 3},
        {"final": ()},
        {"final": (), "forking": (7, 9)},
        {"admitted": ()},
        {"preempted": (3,)},
        {"preempted": (), "expired": (2, 11)},
        {"hand_offs": ()},
        {"hand_offs": (MOVE._replace(target=2),)},
        {"hand_offs": (MOVE._replace(pages=((3, 2), ())),)},
        {"hand_offs": (MOVE._replace(stop=6),)},
        {"hand_offs": (MOVE._replace(bytes=501),)},
    ],
)
def test_every_decision_shows_in_the_digest(change: dict):
    changed = dataclasses.replace(PLAN, **change)
    assert changed.digest != PLAN.digest and len(PLAN.digest) == 32


def test_times_do_not_show_in_the_digest():
    """The engine's clock is never to the last bit the simulator's."""
    assert dataclasses.replace(PLAN, wake=1.0, hand_offs=(MOVE._replace(seconds=9.0),)).digest == PLAN.digest


def test_of_tables_only_what_moved_shows():
    """What lies before was in the digest of an earlier plan."""
    assert dataclasses.replace(PLAN, tables=((1, 6), (8,))).digest == PLAN.digest


class Recorder(Observer):
    """A log of all that went in, from which the run can be repeated without a model."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.log: list[tuple] = []
        self.digests: list[str] = []

    def submitted(self, state, request, refused, now):
        if refused is None:
            self.device.accept(request)
            self.log.append(("submit", request))

    def cancelled(self, state, id, now):
        self.log.append(("cancel", id))

    def planned(self, before, plan, after, now):
        self.log.append(("plan", now))
        self.digests.append(plan.digest)

    def updated(self, before, plan, outcome, after, ends, now):
        self.log.append(("fold", plan, outcome))


def after(policy: Chunked, state: State, entry: tuple) -> tuple[Plan | None, State]:
    """(the plan, if that is what the entry of a log is; the state that follows)."""
    kind, *what = entry
    if kind == "submit":
        return None, submit(state, what[0], policy.limits)
    if kind == "cancel":
        return None, cancel(state, what[0])
    if kind == "fold":
        return None, update(state, *what)[0]
    return policy(state, what[0])


def replay(policy: Chunked, state: State, log: list[tuple]) -> list[str]:
    digests = []
    for entry in log:
        plan, state = after(policy, state, entry)
        if plan is not None:
            digests.append(plan.digest)
    return digests


def run() -> tuple[Chunked, State, Recorder]:
    """Prefixes, samples, drafts, preemptions and a cancellation."""
    policy = Chunked(Limits(rows=6), 10)
    device = Device(Toy(7), [4], drafts=2)
    recorder = Recorder(device)
    requests = [Request(3 * i, (1, 2, 3, 4, i % 3, 5, i), 9, arrival=1.5 * i, samples=1 + i % 2) for i in range(12)]
    start = State.of(Paged.of(14, 4, prefix=True))
    play(policy, start, requests, run=device.run, cancels=[(6.5, 9)], watch=recorder)
    return policy, start, recorder


def test_a_run_is_replayed_from_what_went_in():
    policy, start, recorder = run()
    assert len(set(recorder.digests)) > 30
    log = pickle.loads(pickle.dumps(recorder.log))
    assert replay(policy, start, log) == recorder.digests


def test_another_process_makes_the_same_plans():
    """Neither `hash` nor `id` has a part in a decision. Nor is JAX there, which takes seconds to import."""
    root = Path(__file__).parents[3]
    program = "import sys; from tests.jaxserve.scheduling.test_plan import run; print(*run()[2].digests, 'jax' in sys.modules)"
    digests = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, env=environment, timeout=120
        )
        assert done.returncode == 0, done.stderr
        digests.append(done.stdout.split())
    assert digests[0] == digests[1] == [*run()[2].digests, "False"]


def test_the_state_that_a_plan_was_made_of_is_not_touched():
    """Bytes of the pickled state before and after, over a whole run; and a state that was pickled goes on alike."""
    policy, state, recorder = run()
    for entry in recorder.log:
        before = pickle.dumps(state)
        plan, new = after(policy, state, entry)
        if plan is not None:
            again, other = after(policy, pickle.loads(before), entry)
            assert again is not None and (plan.digest, other) == (again.digest, new)
        assert pickle.dumps(state) == before
        state = new
    assert state.idle


def test_an_outcome_is_a_value():
    assert StepResult(((1,),), {0: "stop"}) == StepResult(((1,),), {0: "stop"}) != StepResult(((2,),), {0: "stop"})
