"""Numbers that nobody can mean are refused by every script, in one line, before it begins. Oracle: the limits that each option states."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import pytest

from costmodel.terminal.cli import Numbers
from jaxserve.load.units import Unit
from scripts.options import MOST, Real, whole

ROOT = Path(__file__).parents[2] / "scripts"
SCRIPTS = sorted(path.stem for path in ROOT.glob("*.py") if "\n    cli.run(main)\n" in path.read_text(encoding="utf-8"))


def numeric(command: click.Command) -> list[click.Parameter]:
    """Options that take a number."""
    return [each for each in command.params if isinstance(each.type, click.types.IntParamType | click.types.FloatParamType)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_number_has_a_least_and_a_most(script: str):
    command = importlib.import_module(f"scripts.{script}").main
    for option in numeric(command):
        kind = option.type
        assert isinstance(kind, click.IntRange | Real), f"{script} {option.opts[0]} takes any number"
        assert kind.min is not None and kind.max is not None and kind.max <= MOST, f"{script} {option.opts[0]} has no limit"
        for value in (
            "nan",
            "inf",
            "-1",
            "1e99",
            "99999999999",
            "",
            "x",
            *(("1.5",) if isinstance(kind, click.IntRange) else ()),
        ):
            with pytest.raises(click.BadParameter):
                kind.convert(value, option, None)
    for option in command.params:  # what is not given is within the limits too
        if option.default is not None and isinstance(option.default, int | float | str):
            option.type_cast_value(click.Context(command), option.default)
    assert all(isinstance(each.type, click.ParamType | Numbers | Unit) for each in command.params)


def test_there_are_scripts_and_numbers():
    assert len(SCRIPTS) > 12
    assert sum(len(numeric(importlib.import_module(f"scripts.{script}").main)) for script in SCRIPTS) > 20


def test_limits():
    assert whole()("1") == 1 and whole(0)("0") == 0 and Real()("0.5") == 0.5
    for value in ("0", "nan", "1000001"):
        with pytest.raises(click.BadParameter):
            Real()(value)
