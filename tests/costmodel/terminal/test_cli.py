"""How commands end, and options that are lists of numbers. A command that has models to load is in tests/jaxserve/test_decode_cli.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from costmodel.terminal.cli import Numbers
from models.errors import UserError
from tests.jaxserve.commands import error_line
from tests.jaxserve.in_process import in_process

__all__ = ["in_process"]

ROOT = Path(__file__).resolve().parents[3]


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
    program = f"import sys, click, rich\nfrom costmodel.terminal import cli\n@click.command()\ndef command():\n    {body}\ncli.run(command)"
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


@pytest.mark.parametrize(
    "body", ["print('a line')", "rich.print('a line')", "click.echo(), click.get_current_context().exit()"]
)
def test_a_full_disk_is_no_fault(body: str):
    """`... > /dev/full`: it shows at the end or at once, and after --help too."""
    with open("/dev/full", "w") as full:
        code, errors = ended(body, full.fileno())
    assert code == 2
    assert error_line(errors) == "error: output cannot be written: No space left on device; make room, or write elsewhere"


def test_a_full_disk_for_errors_too():
    """The code still says that the input was bad."""
    assert ended("raise cli.UserError('a')", before=("sh", "-c", 'exec "$@" 2>/dev/full', "sh")) == (2, "")
    assert ended("raise cli.UserError('a')", before=("sh", "-c", 'exec "$@" 2>&-', "sh")) == (2, "")


def test_what_a_terminal_cannot_show_is_written_with_a_backslash():
    """Half a character, as an argument that is not UTF-8 holds, and characters that the encoding of standard output lacks."""
    with tempfile.TemporaryFile() as out:
        body = "rich.print('\\udcff \\u2500', end='')"
        assert ended(body, out.fileno(), before=("env", "PYTHONIOENCODING=ascii")) == (0, "")
        out.seek(0)
        assert out.read() == b"\\udcff \\u2500"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("a" * 5000 + "; mend it"), 2, r"error: a{500} \.\.\. a*; mend it"),
        (UserError("a\nb; mend it"), 2, "error: a b; mend it"),
        (OSError(24, "Too many open files", "a"), 2, r"error: too many files are open \(a\); raise the limit with ulimit -n.*"),
        (OSError(30, "Read-only file system", "/a"), 2, r"error: output cannot be written: Read-only file system \(/a\); .*"),
        (RecursionError("deep"), 1, "error: a fault of jaxserve, please report it: RecursionError: deep"),
        (FileNotFoundError(2, "No such file", "a"), 1, "error: a fault of jaxserve, please report it: FileNotFoundError: .*"),
    ],
)
def test_the_line(error: Exception, code: int, said: str, in_process: Any):
    @click.command()
    def command() -> None:
        raise error

    ran = in_process(command)
    assert ran.code == code and re.fullmatch(said, error_line(ran.err))


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
    assert ended("\n    ".join(lines)) == (2, "error: interrupted by Ctrl-C; nothing was kept\n")
