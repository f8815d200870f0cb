"""Runs `python -m jaxserve.size` in this process."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import pytest

from jaxserve.size import main
from jaxserve.sizing import study
from tests.jaxserve.sizing.studies import FACTS, Here

PROBES = 2


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs the command in this process: its standard output."""

    def run(*arguments: str) -> str:
        main.main(list(arguments), prog_name="size", standalone_mode=False)
        return capsys.readouterr().out

    return run


@pytest.fixture(autouse=True)
def a_shorter_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the admission limit, than a user would have."""
    monkeypatch.setattr(study, "PROBES", PROBES)


@pytest.fixture(scope="session")
def facts() -> Any:
    """The study of the facts, with fewer requests than a user would take."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(study, "PROBES", PROBES)
        main.main([*FACTS, "--requests", "80", "--json"], prog_name="size", standalone_mode=False)
    return json.loads(out.getvalue())
