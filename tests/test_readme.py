"""The README's examples do what it says, taken from its text as they stand there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

from models.checkpoint.load import load
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from tests import oracle

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ python (-m .*)$", README, re.MULTILINE)
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=900)


def cases() -> list:
    """Commands on the real weights are slow, and where ceilings of the machine are measured."""
    quick = ("random:tiny", "--analytical", "--table lesson")
    return [pytest.param(c, marks=() if any(q in c for q in quick) else pytest.mark.slow) for c in COMMANDS]


def test_there_are_examples():
    assert len(COMMANDS) >= 3 and PROGRAMS


@pytest.mark.parametrize("command", cases())
def test_command(command: str, tmp_path: Path):
    if "--model" not in command and "costmodel" not in command:
        try:
            open_checkpoint("smollm2")
        except UserError as error:
            pytest.skip(str(error))
    (tmp_path / "prompts.txt").write_text("Say hello.\nName a colour.\n", encoding="utf-8")
    done = run(*command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    word = {"-m jaxserve.size": "undecided until measured", "-m jaxserve.load": "TTFT", "-m jaxserve.simulate": "TTFT"}.get(
        " ".join(command.split()[:2]), "decode"
    )
    assert word in done.stdout and "error" not in done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=["LLM", "Engine"])
def test_program(program: str, tmp_path: Path):
    """Both answer "hello" as the oracle does."""
    done = run("-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    checkpoint = open_checkpoint("random:tiny")
    drawn = oracle.greedy(checkpoint.config, load(checkpoint, jnp.float32), list(b"hello"), 8)
    if "LLM" in program:
        text = bytes(token for token in drawn if token < 256).decode(errors="replace")  # ids are bytes, and the rest is nothing
        assert done.stdout.splitlines()[0] == f"hello {text!r}"
    else:
        *pieces, programs = done.stdout.splitlines()
        assert re.findall(r"^\((\d+),\) ", "\n".join(pieces), re.MULTILINE) == list(map(str, drawn))
        assert list(ast.literal_eval(programs)) == ["decode 2", "prefill 2x16", "decode 2 + prefill 2x16"]


def test_make_targets_that_it_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z-]+)(?=[`\s])", README)) - {"and"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_paths_that_it_names_exist():
    for name in re.findall(r"`((?:models|costmodel|jaxserve|scripts|docs)/[\w/.-]*)`", README):
        assert (ROOT / name).exists(), name


def test_the_first_screen_shows_the_lesson_as_the_command_prints_it(tmp_path: Path):
    """At most 100 columns and 12 rows, and every figure the command's own."""
    table = README.split("```text\n")[1].split("```")[0].splitlines()
    assert len(table) <= 12 and max(map(len, table)) <= 100
    command = re.search(r"by the analytical model alone \(`python (.*)`\)", README)
    assert command
    printed = run(*command[1].split(), cwd=tmp_path).stdout.splitlines()
    rows = {tuple(line.split()) for line in printed}
    assert all(tuple(line.split()) in rows for line in table)


def test_what_comes_after_the_first_screen_is_short():
    assert len(README.split("## Install")[1].splitlines()) <= 150
