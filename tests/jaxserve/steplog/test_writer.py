"""The step log as it is written. Oracle: the lines of a small run, by hand, and the file on disk while the run goes on."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxserve.kv.memory import Memory
from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import StepResult
from jaxserve.scheduling.transfer import Link
from jaxserve.steplog.replay import replay
from jaxserve.steplog.writer import StepLog
from models.errors import UserError
from tests.jaxserve.commands import ROOT


class Logged:
    """A scheduler and the lines that its log has so far."""

    def __init__(self, policy: Policy, *memories: Memory):
        self.file = io.StringIO()
        self.log = StepLog(self.file, "virtual")
        self.scheduler = Scheduler(policy, State.of(*memories), self.log)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Without their checks."""
        lines = [json.loads(line) for line in self.file.getvalue().splitlines()]
        assert all(len(line.pop("check")) == 16 for line in lines)
        return lines

    def step(self, outcome: StepResult, now: float) -> Plan:
        plan = self.scheduler.plan(now)
        assert plan is not None
        self.scheduler.update(plan, outcome, now + 1)
        return plan


def test_the_lines_of_a_small_run():
    """5 tokens a step and pages of 4: prompts of 3 and 4 run as 3 + 2, then the first decodes beside the other 2."""
    run = Logged(Chunked(Limits(2, queue=QueueRule(2)), 5), Paged.of(4, 4))
    run.scheduler.submit(Request(0, (7, 8, 9), 2), 0)
    run.scheduler.submit(Request(1, (7, 8, 9, 6), 9, arrival=0.25, deadline=8.5, priority=2), 0.25)
    with pytest.raises(UserError):
        run.scheduler.submit(Request(2, range(99), 1), 0.5)
    first = run.step(StepResult(((5,), ()), drafts={0: 2}), 1)
    second = run.step(StepResult(((5,), (6,)), {1: "stop"}), 2.5)
    run.log.stepped(StepRecord(1, 0, second.digest, ("decode 2",), 2, 1, 2, 1, 0, 2, 3, None, 0.5, 0.25, 3.5))
    run.scheduler.cancel(1, 4)
    assert run.scheduler.plan(5) is None  # nothing is written
    asked = {"arrival": 0.0, "priority": 1, "deadline": "inf", "samples": 1, "reuse": True}
    policy, memory = run.lines[0].pop("policy"), {"kind": "paged", "pages": 4, "page": 4, "prefix": False}
    refused = "request 2 has a prompt of 99 tokens and up to 1 are to follow, which needs room for 99, but the limit is 16; "
    refused += "shorten the prompt, ask for fewer tokens or raise the KV pool"
    table = {"moved": [[0, 0, [0]], [1, 0, [1]]], "admitted": [0, 1]}
    assert policy["name"] == "chunked" and policy["budget"] == 5
    assert run.lines[1:] == [
        {"event": "submitted", "now": 0, "id": 0, "prompt": 3, "limit": 2, **asked},
        {"event": "submitted", "now": 0.25, "id": 1, "prompt": 4, "limit": 9, **asked}
        | {"arrival": 0.25, "priority": 2, "deadline": 8.5},
        {"event": "submitted", "now": 0.5, "id": 2, "prompt": 99, "limit": 1, **asked, "refused": refused},
        {"event": "planned", "now": 1, "digest": first.digest, "step": 0, "worker": 0, "rows": 2, "prefill": 5, "decode": 0}
        | {"draft": 0, "pages": 2, "slots": 2, "ids": [0, 1], "starts": [0, 0], "counts": [3, 2], "draws": [1, 0], **table},
        {"event": "folded", "now": 2, "step": 0, "worker": 0, "drawn": 1, "counts": [1, 0], "drafts": {"0": 2}},
        {"event": "planned", "now": 2.5, "digest": second.digest, "step": 1, "worker": 0, "rows": 2, "prefill": 2, "decode": 1}
        | {
            "draft": 0,
            "pages": 2,
            "slots": 2,
            "ids": [0, 1],
            "starts": [3, 2],
            "counts": [1, 2],
            "draws": [1, 1],
            "final": [0],
        },
        {"event": "folded", "now": 3.5, "step": 1, "worker": 0, "drawn": 2, "counts": [1, 1], "ended": {"1": "stop"}}
        | {"ends": [{"id": 0, "reason": "length"}, {"id": 1, "reason": "stop"}]},
        {"event": "stepped", "step": 1, "worker": 0, "digest": second.digest, "programs": ["decode 2"], "rows": 2, "padded": 1}
        | {"prefill": 2, "decode": 1, "draft": 0, "drawn": 2, "pages": 3, "predicted": None, "measured": 0.5, "host": 0.25}
        | {"at": 3.5},
        {"event": "cancelled", "now": 4, "id": 1},
    ]
    head = {"event": "log", "format": 1, "clock": "virtual", "memories": [memory]}
    assert {key: run.lines[0][key] for key in head} == head


@pytest.mark.parametrize(
    ("memory", "kept"), [(Paged.of(4, 4), False), (Slots.of(2, 16), False), (Paged.of(4, 4, prefix=True), True)]
)
def test_what_is_said_is_kept_only_where_plans_depend_on_it(memory: Memory, kept: bool):
    """Also of tokens that are NumPy's."""
    run = Logged(Continuous(Limits(2)), memory)
    tokens: list[Any] = list(np.array([7, 8, 9, 5], np.int32))
    run.scheduler.submit(Request(0, tokens[:3], 3), 0)
    run.step(StepResult(((tokens[3],),)), 1)
    submitted, folded = run.lines[1], run.lines[-1]
    assert (submitted.get("tokens"), folded.get("tokens"), folded.get("counts")) == (
        ([7, 8, 9], [[5]], None) if kept else (None, None, [1])
    )


def test_a_plan_without_work_is_written_only_where_it_changes_something():
    """Row 0 waits for company until 9 s; at 3 s it falls behind row 1, which came later: no plan, but another queue."""
    limits = Limits(3, queue=QueueRule(timeout=3.0, late="delay"))
    run = Logged(Dynamic(limits, delay=9.0), Paged.of(4, 4))
    run.scheduler.submit(Request(0, range(2), 1), 0)
    run.scheduler.submit(Request(1, range(2), 1, arrival=2.0), 2.0)
    for now in (2.0, 2.5, 3.0, 3.5):
        assert run.scheduler.plan(now) is None
    assert [row.id for row in run.scheduler.state.waiting] == [1, 0]
    assert [line["now"] for line in run.lines if line["event"] == "planned"] == [3.0]
    assert run.lines[-1]["wake"] == 5.0  # when row 1 falls behind, too


def test_hand_offs_and_workers():
    run = Logged(Disaggregated(Link(10, 40.0, 0.5), Limits(2)), Paged.of(4, 4), Paged.of(4, 4))
    run.scheduler.submit(Request(0, range(6), 3), 0)
    run.step(StepResult(((5,),)), 0)
    run.scheduler.plan(2)  # 60 B at 40 B/s after half a second
    moved = {"id": 0, "source": 0, "target": 1, "pages": [[0, 1], [0, 1]], "start": 0, "stop": 6, "bytes": 60, "seconds": 2.0}
    assert run.lines[-1]["hand_offs"] == [moved] and run.lines[-1]["wake"] == 4.0
    assert len(run.lines[0]["memories"]) == 2


def test_every_line_is_on_disk_at_once(tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    with StepLog(path) as log:
        scheduler = Scheduler(Continuous(), State.of(Paged.of(4, 4)), log)
        for id in range(5):
            scheduler.submit(Request(id, range(3), 1), 0.0)
            assert path.read_text().count("\n") == id + 2 and path.read_text().endswith("}\n")


def test_a_run_that_is_killed_leaves_its_log(tmp_path: Path):
    program = """
        import os, signal
        from jaxserve.scheduling.continuous import Continuous
        from jaxserve.scheduling.step_result import StepResult
        from jaxserve.kv.paged import Paged
        from jaxserve.scheduling.request import Request
        from jaxserve.scheduling.scheduler import Scheduler
        from jaxserve.scheduling.state import State
        from jaxserve.steplog.writer import StepLog

        scheduler = Scheduler(Continuous(), State.of(Paged.of(9, 4)), StepLog("steps.jsonl"))
        scheduler.submit(Request(0, range(3), 30), 0.0)
        for step in range(7):
            scheduler.update(scheduler.plan(step), StepResult(((1,),)), step)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, env=environment, timeout=120)
    assert child.returncode == -signal.SIGKILL
    found = replay(tmp_path / "steps.jsonl", Observer())
    assert (found.plans, found.difference, found.cut) == (7, None, None)


def test_what_could_not_be_replayed_is_not_begun(tmp_path: Path):
    class Own(Continuous):
        pass

    log = StepLog(io.StringIO())
    with pytest.raises(UserError, match="Own can't be written down; move it out of the function"):
        Scheduler(Own(), State.of(Paged.of(4, 4)), log)
    past = Scheduler(Continuous(), State.of(Paged.of(4, 4)))
    past.submit(Request(0, range(2), 1), 0.0)
    with pytest.raises(UserError, match="begins with a scheduler that has done nothing yet"):
        Scheduler(Continuous(), past.state, log)
    Scheduler(Continuous(), State.of(Paged.of(4, 4)), log)
    with pytest.raises(UserError, match="belongs to another scheduler already"):
        Scheduler(Continuous(), State.of(Paged.of(4, 4)), log)
    with pytest.raises(UserError, match=r"the step log .* can't be written: No such file or directory"):
        StepLog(tmp_path / "none" / "steps.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told():
    with pytest.raises(UserError, match="the step log can't be written further: No space left on device"):
        Scheduler(Continuous(), State.of(Paged.of(4, 4)), StepLog("/dev/full"))


def test_a_file_of_somebody_else_stays_open():
    file = io.StringIO()
    with StepLog(file) as log:
        Scheduler(Continuous(Limits(queue=QueueRule(timeout=math.inf))), State.of(Paged.of(4, 4)), log)
    assert not file.closed
    first, last = file.getvalue().splitlines()
    assert json.loads(first)["event"] == "log" and json.loads(last)["event"] == "closed"


def test_the_check_of_a_line():
    """Oracle: BLAKE2b of 8 bytes from hashlib, over the check before and the line without its own, as the text stands in the file."""
    run = Logged(Continuous(), Paged.of(4, 4))
    run.scheduler.submit(Request(0, range(2), 1), 0.5)
    run.log.close()
    run.log.close()
    before = b""
    lines = run.file.getvalue().encode().splitlines()
    assert lines[-1].startswith(b'{"event":"closed","check":"') and len(lines) == 3
    for line in lines:
        text, check = line.split(b',"check":"')
        before = hashlib.blake2b(before + text + b"}", digest_size=8).hexdigest().encode()
        assert check == before + b'"}'
