"""A step log of a small run, and what may be done to one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.scheduling.token_counts import TokenCounts
from jaxserve.steplog.replay import replay
from jaxserve.steplog.writer import StepLog
from models.errors import UserError
from tests.jaxserve.scheduling.clock import play


def small_log(path: Path) -> Path:
    """5 tokens a step, 3 pages of 3; prompts of 3 and 4 tokens, 4 and 3 to follow; the second is preempted on the way."""
    requests = [Request(0, range(3), 4), Request(1, range(4), 3)]
    with StepLog(path, "virtual") as log:
        played = play(Chunked(Limits(2), 5), State.of(Paged.of(3, 3)), requests, watch=log)
    assert any(plan.preempted for _, plan in played.plans)
    return path


def altered(path: Path, number: int, **fields: Any) -> None:
    """Change fields of a line of the log."""
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | fields) + "\n"
    path.write_text("".join(lines))


def unchecked(path: Path) -> Path:
    """Make it a log as older versions wrote them: no line has a check, and none says that it is the last."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("check")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if line["event"] != "closed"))
    return path


def numbers(path: Path, event: str) -> list[int]:
    """Of the lines that tell this event."""
    return [i for i, line in enumerate(path.read_text().splitlines(), 1) if json.loads(line)["event"] == event]


def without(path: Path, number: int) -> None:
    """Take a line out of the log."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: number - 1] + lines[number:]))


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        replay(path, Observer())
    assert "\n" not in str(error.value)
    return str(error.value)


class Timed(Observer):
    """Writes to a log what steps took, as an engine would: step n took n + 0.5 s in a program of its own."""

    def __init__(self, log: StepLog):
        self._log, self._kinds, self._count = log, dict[int, TokenCounts](), 0

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        self._kinds[plan.step] = TokenCounts.of(plan, after)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        worker, count = before.workers[plan.worker], self._count
        live = [tokens for id, tokens in zip(plan.ids, outcome.tokens, strict=True) if id in worker.rows]
        self._log.stepped(
            StepRecord(
                plan.step, plan.worker, plan.digest, (f"step {count}",), len(plan.ids), 1, *self._kinds.pop(plan.step),
                sum(map(len, live)), worker.memory.in_use, count % 2 or None, count + 0.5, 1e-5, now,
            )
        )  # fmt: skip
        self._count += 1


def timed_log(path: Path) -> Path:
    """That of the small run, with what steps took."""
    requests = [Request(0, range(3), 4), Request(1, range(4), 3)]
    with StepLog(path) as log:
        play(Chunked(Limits(2), 5), State.of(Paged.of(3, 3)), requests, watch=Observers(log, Timed(log)))
    return path
