"""`python -m jaxserve.decode` as users meet it. Oracle: the issue's list of bad input, exit codes, and JSON's own grammar."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costmodel.hardware.host import without_accelerator
from jaxserve.decode import main
from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.main_job import job
from jaxserve.programs import memory
from tests.jaxserve import commands
from tests.jaxserve.bad_input import CASES, TINY
from tests.jaxserve.commands import error_line
from tests.jaxserve.in_process import Ran, expensive, in_process

__all__ = ["in_process"]

MODULE = "jaxserve.decode"


@pytest.fixture
def here(in_process: Callable[..., Ran]) -> Callable[..., Ran]:
    """Runs the command in an empty folder -> (exit code, stdout, stderr)."""
    return functools.partial(in_process, main)


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_line_before_anything_expensive(name: str, here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither the ceilings nor the dtypes are measured, no weight is loaded, nothing compiled."""
    for step in ("ceilings", "choose_dtype", "load_model"):
        monkeypatch.setattr(job, step, expensive)
    monkeypatch.setattr(CompiledPrograms, "of", expensive)
    monkeypatch.setattr(memory, "available_bytes", lambda: 24_000_000_000)
    code, out, err = here(*CASES[name].make(tmp_path))
    assert code == 2 and out == ""
    assert re.search(CASES[name].pattern, error_line(err)), err


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_bad_input_in_a_process_of_its_own(name: str, tmp_path: Path):
    found = commands.run(MODULE, *CASES[name].make(tmp_path), cache=tmp_path)
    assert found.returncode == 2 and found.stdout == ""
    assert re.search(CASES[name].pattern, error_line(found.stderr)), found.stderr


def test_bad_input_leaves_the_process_with_2(tmp_path: Path):
    found = commands.run(MODULE, "--model", "./none.gguf", cache=tmp_path)
    assert found.returncode == 2 and "no such file or folder" in error_line(found.stderr)


def test_help_has_an_example(tmp_path: Path):
    found = commands.run(MODULE, "--help", cache=tmp_path)
    assert found.returncode == 0 and found.stderr == ""
    assert "Example: python -m jaxserve.decode --batch 1,8,64" in found.stdout
    for option in ("--batch", "--model", "--prompts", "--max-tokens", "--context", "--dtype", "--page-size", "--temperature",
                   "--seed", "--json"):  # fmt: skip
        assert option in found.stdout


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("it broke\nbadly"), 1, "error: a fault of jaxserve, please report it: ValueError: it broke"),
        (AssertionError(), 1, "error: a fault of jaxserve, please report it: AssertionError: (no message)"),
        (KeyboardInterrupt(), 2, "error: interrupted by Ctrl-C; nothing was kept"),
        (
            MemoryError(),
            2,
            "error: the device ran out of memory (no details); lower --batch or --rows, or take a smaller model",
        ),
        (RuntimeError("RESOURCE_EXHAUSTED: 9 GB"), 2, "error: the device ran out of memory (RESOURCE_EXHAUSTED: 9 GB); lower"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_verdicts(error: BaseException, code: int, line: str, here: Any, monkeypatch: pytest.MonkeyPatch):
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(job, "run", fail)
    found, out, err = here(*TINY)
    assert found == code and out == "" and error_line(err).startswith(line)


def test_a_traceback_on_request(here: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAXSERVE_TRACEBACK", "1")
    code, _, err = here("--batch", "0")
    assert code == 2 and "Traceback" in err and err.splitlines()[-1] == "error: --batch is 0; it must be at least 1"


def test_a_fault_of_ours_leaves_the_process_with_1(tmp_path: Path):
    imports = "from costmodel.terminal import cli\nfrom jaxserve import decode\nfrom jaxserve.main_job import job\n"
    source = imports + "job.run = lambda *_: 1 / 0\ncli.run(decode.main, [])"
    found = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=300, env=commands.environment(tmp_path)
    )
    assert found.returncode == 1 and found.stdout == ""
    assert error_line(found.stderr) == "error: a fault of jaxserve, please report it: ZeroDivisionError: division by zero"


@pytest.mark.slow
@pytest.mark.parametrize("platforms", ["cuda", "gpu", "nonsense"])
def test_a_platform_that_jax_cannot_start_is_the_users_choice(platforms: str, tmp_path: Path):
    """JAX raises a RuntimeError for some and fails an assertion for others."""
    if not without_accelerator():
        pytest.skip("this machine has an accelerator")
    found = commands.run(MODULE, *TINY, cache=tmp_path, JAX_PLATFORMS=platforms)
    assert found.returncode == 2 and found.stdout == "" and "Traceback" not in found.stderr, found.stderr
    *warnings, last = found.stderr.splitlines()  # those of plugins that are installed here and find no driver
    assert last.startswith(f"error: JAX cannot start on JAX_PLATFORMS={platforms}") and "; unset it, or install" in last
    assert all(line.startswith("warning: Jax plugin configuration error: ") for line in warnings), found.stderr


def test_a_plugin_that_cannot_start_is_told_in_a_line(tmp_path: Path):
    """As jaxserve[cuda] where CUDA's libraries are missing: JAX logs a traceback, and goes on without it."""
    folder = tmp_path / "site" / "jax_plugins"
    folder.mkdir(parents=True)
    (folder / "broken.py").write_text("def initialize():\n    raise RuntimeError('No library.\\nIs it installed?')\n")
    path = os.pathsep.join([str(commands.ROOT), str(folder.parent), *sys.path])
    found = commands.run(MODULE, *TINY, cache=tmp_path, JAX_PLATFORMS="cpu,nonsense", PYTHONPATH=path)
    assert found.returncode == 2 and found.stdout == "" and "Traceback" not in found.stderr, found.stderr
    *warnings, last = found.stderr.splitlines()  # other plugins that are installed here have theirs
    what = "Jax plugin configuration error: Exception when calling jax_plugins.broken.initialize()"
    assert warnings.count(f"warning: {what}: No library.") == 1
    assert last.startswith("error: JAX cannot start on JAX_PLATFORMS=cpu,nonsense")
    found = commands.run(
        MODULE, *TINY, cache=tmp_path, JAX_PLATFORMS="cpu,nonsense", PYTHONPATH=path, JAX_LOGGING_LEVEL="ERROR"
    )
    assert "Traceback" in found.stderr and "warning: " not in found.stderr


def test_a_reader_who_leaves_is_no_error(tmp_path: Path):
    """`... | head`: the pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    try:
        found = subprocess.run(
            [sys.executable, "-m", MODULE, "--help"],
            stdout=write, stderr=subprocess.PIPE, text=True, timeout=300, env=commands.environment(tmp_path),
        )  # fmt: skip
    finally:
        os.close(write)
    assert found.returncode == 0 and found.stderr == ""


@pytest.mark.parametrize("seconds", [0.3, pytest.param(2.0, marks=pytest.mark.slow), pytest.param(7.0, marks=pytest.mark.slow)])
def test_ctrl_c(seconds: float, tmp_path: Path):
    """While JAX is imported, while programs compile or later: the job would go on for hours."""
    options = [*TINY, "--batch", ",".join(["64"] * 200), "--max-new-tokens", "800", "--dtype", "float32"]
    imports = "from costmodel.terminal import cli\nfrom jaxserve import decode\n"
    source = f"{imports}print('on', flush=True)\ncli.run(decode.main, {options})"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits it where it is ignored, as under nohup
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", source],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=commands.environment(tmp_path),
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    with child:
        assert child.stdout is not None and child.stdout.readline() == "on\n"
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
    assert child.returncode == 2 and out == ""
    assert error_line(err) == "error: interrupted by Ctrl-C; nothing was kept"
