"""How commands end, and options that are lists of numbers. A command that has models to load is in tests/jaxserve/test_decode_cli.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from costmodel.cli import Numbers
from models.errors import UserError
from tests.jaxserve.commands import error_line

ROOT = Path(__file__).resolve().parents[2]


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


def ended(body: str, stdout: int = subprocess.PIPE, before: tuple[str, ...] = ()) -> tuple[int, str]:
    """(exit code, standard error) of a process whose command has this body, started by the program `before`."""
    program = (
        f"import sys, click, rich\nfrom costmodel import cli\n@click.command()\ndef command():\n    {body}\ncli.run(command)"
    )
    command = [*before, sys.executable, "-c", program]
    child = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60)
    return child.returncode, child.stderr


@pytest.mark.parametrize("body", ["print('a line')", "click.get_current_context().exit()"])
def test_the_end_of_a_command_is_0(body: str):
    assert ended(body) == (0, "")


@pytest.mark.parametrize("body", ["print('a line')", "rich.print('a line')"])
def test_a_reader_who_has_gone_is_no_fault(body: str):
    """`... | head`: nobody reads the pipe any more when something is written: by print at the end, by rich at once."""
    read, write = os.pipe()
    os.close(read)
    try:
        assert ended(body, write) == (0, "")
    finally:
        os.close(write)


@pytest.mark.parametrize("body", ["print('a line')", "rich.print('a line')"])
def test_without_a_standard_output(body: str):
    """`... >&-`, which leaves Python without sys.stdout: there is nothing to write to, and nobody to tell."""
    assert ended(body, before=("sh", "-c", 'exec "$@" >&-', "sh")) == (0, "")


@pytest.mark.parametrize("said", ["3", "0"])
def test_an_exit_that_nobody_asked_for_is_a_fault(said: str):
    """A command ends by returning or by raising; what a library ends with sys.exit is not done, whatever it says."""
    code, errors = ended(f"sys.exit({said})")
    assert code == 1 and error_line(errors).startswith("error: a fault of jaxserve, please report it: SystemExit: ")


def test_ctrl_c_within_a_callback_of_the_collector_is_not_lost():
    """There Python prints a traceback and goes on; JAX has such a callback. The first one here interrupts itself, once."""
    lines = (
        "import gc, signal, time",
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, as under nohup",
        "gc.callbacks.append(lambda *_: (gc.callbacks.pop(), signal.raise_signal(signal.SIGINT)))",
        "gc.collect()",
        "time.sleep(100)",
    )
    assert ended("\n    ".join(lines)) == (2, "error: interrupted; nothing was kept\n")
