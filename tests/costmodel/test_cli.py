"""Options that are lists of numbers. How commands end is tried on a real one, in tests/jaxserve/test_decode_cli.py."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from costmodel.cli import Numbers
from models.errors import UserError


def parsed(*arguments: str) -> tuple[int, ...]:
    @click.command()
    @click.option("--batch", type=Numbers(), default="64")
    def command(batch: tuple[int, ...]) -> None:
        click.echo(",".join(map(str, batch)))

    result = CliRunner().invoke(command, arguments)
    if result.exception:
        raise result.exception
    return tuple(int(part) for part in result.output.split(","))


def test_numbers():
    assert parsed() == (64,) and parsed("--batch", "8") == (8,) and parsed("--batch", "1,8, 64") == (1, 8, 64)


@pytest.mark.parametrize("text", ["", "1,", "a", "1.5", "1;2"])
def test_not_numbers(text: str):
    with pytest.raises(UserError, match=r"--batch is .*; give a whole number or several, such as 1,8,64"):
        parsed("--batch", text)


@pytest.mark.parametrize(("text", "least"), [("0", 0), ("8,0", 0), ("-3", -3)])
def test_too_small(text: str, least: int):
    with pytest.raises(UserError, match=f"--batch is {least}; it must be at least 1"):
        parsed(f"--batch={text}")
