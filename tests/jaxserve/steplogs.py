"""A step log of a small run, and what may be done to one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxserve.rerun import rerun
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.paged import Paged
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.watch import Watch
from jaxserve.steplog import StepLog
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


def numbers(path: Path, event: str) -> list[int]:
    """Of the lines that tell this event."""
    return [i for i, line in enumerate(path.read_text().splitlines(), 1) if json.loads(line)["event"] == event]


def without(path: Path, number: int) -> None:
    """Take a line out of the log."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: number - 1] + lines[number:]))


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        rerun(path, Watch())
    assert "\n" not in str(error.value)
    return str(error.value)
