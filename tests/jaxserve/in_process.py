"""Runs commands in this process, up to where theirs would end: imports and compiled programs stay, and a test may replace what they use."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from costmodel.terminal import cli


class Left(BaseException):
    """Stands for the end of the process."""


class Ran(NamedTuple):
    """What a process leaves behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return strict(self.out)


def strict(text: str) -> Any:
    """JSON proper: no NaN, no Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def expensive(*args: Any, **kwargs: Any) -> Any:
    """Stands for what bad input must not get to."""
    raise AssertionError("bad input got as far as expensive work")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`in_process(main, *arguments)`: the command `main`, in a folder that is the test's own."""

    def leave(code: int) -> None:
        raise Left(code)

    def run(main: Any, *arguments: str) -> Ran:
        with pytest.raises(Left) as left:
            cli.run(main, list(arguments))
        return Ran(left.value.args[0], *capsys.readouterr())

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.chdir(tmp_path)
    return run
