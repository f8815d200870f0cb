"""Compiling for a target without its chip: the child process, what it gives back, and everything that may be wrong.

Nothing here needs a plugin; `test_target_programs.py` compiles for chips. Oracles: FLOPs and bytes by hand, JAX's own compilation in this
process, the process table.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.sharding import PartitionSpec

from costmodel.compile import targets
from costmodel.compile.target_table import TARGETS, find_target
from costmodel.compile.target_worker import full
from costmodel.compile.targets import TargetProgram, compile_for, compiler_version
from costmodel.compile.xla import XlaTotals, in_place, xla_totals
from models.errors import UserError
from tests.costmodel.target_functions import add, broken, environment, f32, mlp, multiply, slow

ROOT = Path(__file__).resolve().parents[3]


def test_a_program_for_this_processor():
    before = dict(os.environ)
    program = compile_for("cpu", multiply, f32(8, 64), f32(64, 32))
    here = jax.jit(multiply).lower(f32(8, 64), f32(64, 32)).compile()
    assert program.totals == xla_totals(here)
    assert program.totals.flops == 2 * 8 * 64 * 32
    assert "jit(multiply)/out/" in program.text and program.text.startswith("HloModule jit_multiply")
    assert (program.target, program.chips) == ("cpu", 1) and program.seconds > 0
    assert program.versions == {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    assert os.environ == before


def test_the_device_that_jax_uses_here():
    """In this very process, so a function that cannot be pickled will do."""
    program = compile_for("host", lambda x: x + 1, f32(4))
    assert program.target == "host" and program.totals.output_bytes == 16


def test_donation_reaches_the_compiler():
    pools = (1 << 14, 1 << 18)
    given = [compile_for("cpu", add, f32(n), f32(4), donate=(0,)) for n in pools]
    kept = [compile_for("host", add, f32(n), f32(4)) for n in pools]
    assert [p.totals.alias_bytes for p in given] == [4 * n for n in pools] and in_place(*given)
    assert not in_place(*kept)


def test_a_program_for_several_devices():
    """Columns of up and rows of down are split over 8: each device does an eighth, and the result is summed over all."""
    column, row = PartitionSpec(None, "model"), PartitionSpec("model", None)
    program = compile_for("cpu", mlp, f32(16, 64), f32(64, 256), f32(256, 64), mesh={"model": 8}, specs=(None, column, row))
    assert program.chips == 8 and "all-reduce(" in program.text and "num_partitions=8" in program.text
    assert program.totals.argument_bytes == 4 * (16 * 64 + 2 * 64 * 256 // 8)
    assert jax.device_count() < 8  # this process still has its own


def test_the_child_has_its_own_devices():
    with pytest.raises(UserError, match=r"^compiling for cpu: ValueError: cpu 4$"):
        compile_for("cpu", environment, f32(4), mesh={"a": 2, "b": 2}, specs=(PartitionSpec("a"),))


@pytest.mark.slow
def test_several_at_once():
    found: dict[int, TargetProgram] = {}

    def make(n: int) -> None:
        found[n] = compile_for("cpu", multiply, f32(n, 16), f32(16, 16))

    threads = [threading.Thread(target=make, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: program.totals.output_bytes for n, program in found.items()} == {n: 4 * 16 * n for n in (1, 2, 3)}


class InTheScript:
    """As a class of the script that runs: Python names its module so."""

    __module__ = "__main__"

    def __call__(self, x: jax.Array) -> jax.Array:
        return x


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compile_for("h1000", multiply, f32(2, 2), f32(2, 2)), "unknown chip 'h1000'; did you mean h100"),
        (
            lambda: compile_for("l4", multiply, f32(2, 2), f32(2, 2)),
            "no program can be compiled for l4 from here; compilers are at hand",
        ),
        (lambda: compile_for("cpu", lambda x: x, f32(4)), "cannot be pickled .*; define it at the top of a module"),
        (
            lambda: compile_for("cpu", InTheScript(), f32(4)),
            "defined in the script that runs; define it at the top of a module",
        ),
        (
            lambda: compile_for("cpu", broken, f32(2, 3)),
            r"^compiling for cpu: TypeError: dot_general requires contracting dimensions",
        ),
        (
            lambda: compile_for("host", broken, f32(2, 3)),
            r"^compiling for host: TypeError: dot_general requires contracting dimensions",
        ),
        (
            lambda: compile_for("cpu", mlp, f32(2, 2), mesh={"model": 2}),
            "0 specs are given for 1 arguments, and 1 axes of a mesh",
        ),
        (lambda: compile_for("cpu", mlp, f32(2, 2), specs=(None,)), "1 specs are given for 1 arguments, and 0 axes"),
        (
            lambda: compile_for("host", mlp, f32(2, 2), mesh={"model": 512}, specs=(None,)),
            r"^compiling for host: a mesh of 512 devices is asked for, and there are \d",
        ),
        (lambda: compile_for("cpu", slow, f32(4), timeout=1), "compiling for cpu took longer than 1 s and was stopped"),
        (lambda: find_target("h100")[1].topology(12), "12 GPUs do not fill hosts of 8"),
        (lambda: find_target("v5e")[1].topology(12), "12 TPU chips make no torus"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(call: Any, message: str):
    with pytest.raises(UserError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_function_that_the_child_does_not_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "there_and_gone.py").write_text("def f(x):\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import there_and_gone  # type: ignore[import-not-found]

    (tmp_path / "there_and_gone.py").unlink()
    with pytest.raises(UserError, match=r"cannot be loaded by the process that compiles .*there_and_gone.*; define it"):
        compile_for("cpu", there_and_gone.f, f32(4))


def test_a_child_that_dies_is_said_to(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        targets, "CHILD", "import os, sys; print('out of luck', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    )
    with pytest.raises(UserError, match="ended by SIGKILL, as a system does that is out of memory: out of luck"):
        compile_for("cpu", multiply, f32(2, 2), f32(2, 2))
    monkeypatch.setattr(targets, "CHILD", "import sys; sys.exit(7)")
    with pytest.raises(UserError, match="failed with code 7: it said nothing"):
        compile_for("cpu", multiply, f32(2, 2), f32(2, 2))


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("h100", "jax-cuda13-plugin", "gpu-targets"), ("v6e", "libtpu", "tpu-targets")]
)
def test_a_missing_compiler(monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str):
    real = importlib.metadata.version

    def version(asked: str) -> str:
        if asked == package:
            raise importlib.metadata.PackageNotFoundError(asked)
        return real(asked)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(
        UserError, match=rf"no compiler for \S+ is installed \({package}\); run: pip install 'jaxserve\[{extra}\]'"
    ):
        compile_for(name, multiply, f32(2, 2), f32(2, 2))


@pytest.mark.parametrize(
    ("name", "found", "command"),
    [("h100-sxm", "0.9.0", r"pip install 'jax\[cuda13-local\]=="), ("tpu-v6e", "99.0.1", r"pip install 'jax\[tpu\]==")],
)
def test_a_compiler_of_another_version(monkeypatch: pytest.MonkeyPatch, name: str, found: str, command: str):
    monkeypatch.setattr(importlib.metadata, "version", lambda asked: found)
    with pytest.raises(UserError, match=rf"{found}, does not match jax .*, which needs .*; run: {command}{jax.__version__}'"):
        compiler_version(name, TARGETS[name])


def test_what_does_not_fit():
    """The messages are what a v5e's compiler says of programs that are too large; a GPU's says nothing."""
    used = (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 130.57G of 15.75G hbm. "
        "Exceeded hbm capacity by 114.82G.\n\nTotal hbm usage >= 130.82G:\n    reserved 258.00M"
    )
    total = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (130.57G) exceeds available HBM "
        "(15.75G)."
    )
    for refusal in (used, total):
        assert full(RuntimeError(refusal)).startswith(
            "it needs 130.57GiB of memory, and the chip has 15.75GiB for programs; take"
        )
    assert full(RuntimeError("INTERNAL: something else")) == ""
    program = TargetProgram("h100-sxm", 1, "", XlaTotals(peak_bytes=141_000_000_000), 1.0, {})
    with pytest.raises(UserError, match=r"compiling for h100-sxm: it needs 141.0 GB of memory, and the chip has 84.9 GB; take"):
        targets._check_fit("h100-sxm", TARGETS["h100-sxm"], program)
    targets._check_fit("h200", TARGETS["h200"], program)


CALLER = """
import sys
sys.path[:0] = [{root!r}]
from costmodel.compile.targets import compile_for
from tests.costmodel.target_functions import f32, slow
compile_for("cpu", slow, f32(4))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the process table of Linux")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_the_child_ends_with_its_parent(sent: signal.Signals, tmp_path: Path):
    """At once, though it is in the middle of its work: at Ctrl-C, and where the parent has no time to say anything. No file stays."""
    command = [sys.executable, "-c", CALLER.format(root=str(ROOT))]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        child = _wait(lambda: next(iter(children.read_text().split()), None))
        _wait(lambda: _idle(int(child)))
        parent.send_signal(sent)
        parent.wait(30)
        _wait(lambda: not Path(f"/proc/{child}").exists() or _state(int(child)) == "Z")
        assert not list(tmp_path.iterdir())
    finally:
        parent.kill()
        parent.communicate()


def _wait(for_what: Any, seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := for_what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _idle(pid: int) -> bool:
    """Asleep, with the thread that watches the parent: within `slow`, or on the way there."""
    return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1 and _state(pid) == "S"
