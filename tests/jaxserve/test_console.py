"""`jaxserve COMMAND`: all commands under one name. Oracle: the modules' own help."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from costmodel.terminal import cli
from jaxserve.__main__ import COMMANDS, main
from tests.jaxserve import commands

EACH = {name: entry for group in COMMANDS.values() for name, entry in group.items()}
ROOT = Path(__file__).resolve().parents[2]


def test_help_is_grouped_and_says_each_command_once():
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    assert [line.rstrip(":") for line in done.output.splitlines() if line.rstrip(":") in COMMANDS] == list(COMMANDS)
    assert all(done.output.count(f"\n  {name} ") == 1 for name in EACH)
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.parametrize("name", EACH)
def test_a_sub_command_is_the_module(name: str):
    own = importlib.import_module(EACH[name].module).main
    assert isinstance(own, click.Command)
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0 and done.output.startswith(f"Usage: main {name} [OPTIONS]")
    assert done.output.split("\n", 1)[1] == CliRunner().invoke(own, ["--help"]).output.split("\n", 1)[1]


def test_every_command_that_lies_beside_the_rooms_is_there():
    flat = {
        path.stem
        for path in (ROOT / "jaxserve").glob("[a-z]*.py")
        if "\n    cli.run(main)\n" in path.read_text(encoding="utf-8")
    }
    assert {entry.module.split(".")[1] for entry in EACH.values() if entry.module.startswith("jaxserve")} == flat | {"load"}


def test_help_imports_no_jax_and_ends_in_good_order(tmp_path: Path):
    program = "import sys\nfrom jaxserve.__main__ import main\nfrom click.testing import CliRunner\n"
    program += "CliRunner().invoke(main, ['--help'])\nsys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60).returncode == 0
    done = commands.run("jaxserve", "nothing", cache=tmp_path)
    assert done.returncode == 2 and done.stderr.strip() == "error: No such command 'nothing'."


def test_the_line_that_started_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["x", "--report", "a b.html"])
    assert cli.command_line("jaxserve.size") == "python -m jaxserve.size --report 'a b.html'"
    monkeypatch.setattr(cli, "_program", lambda: "jaxserve")
    monkeypatch.setattr(sys, "argv", ["x", "size", "--report", "a.html"])
    assert cli.command_line("jaxserve.size") == "jaxserve size --report a.html"
