"""Device files of made-up machines, and what JAX is told of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.hardware.host import spare_jax_the_search, without_accelerator

ROOT = Path(__file__).resolve().parents[3]


def machine(folder: Path, *files: str) -> Path:
    for file in ("null", "nvme0", "vfio/vfio", *files):  # what any machine may have
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="device files of Linux")
def test_a_machine_without_one_is_told_to_use_its_processor(tmp_path: Path):
    given: dict[str, str] = {}
    spare_jax_the_search(given, machine(tmp_path))
    assert given == {"JAX_PLATFORMS": "cpu"}
    chosen = {"JAX_PLATFORMS": "cuda,cpu"}
    spare_jax_the_search(chosen, tmp_path)
    assert chosen == {"JAX_PLATFORMS": "cuda,cpu"}


@pytest.mark.parametrize("file", ["nvidia0", "nvidiactl", "dxg", "kfd", "accel0", "vfio/0"])
def test_any_accelerator_is_left_to_jax(tmp_path: Path, file: str):
    given: dict[str, str] = {}
    spare_jax_the_search(given, machine(tmp_path, file))
    assert given == {} and not without_accelerator(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not without_accelerator(), reason="this machine has an accelerator")
def test_a_command_says_nothing_of_compilers_that_are_no_drivers():
    """On standard error, whatever plugins are installed here: `make test-all` installs two."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    options = "--model random:tiny --batch 1 --max-new-tokens 2 --json".split()
    command = [sys.executable, "-m", "jaxserve.decode", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
