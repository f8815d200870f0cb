"""Compiling a program for a chip that is not here, with abstract arguments only: an 8B or 70B step takes no weights in memory.

XLA's compilers come as JAX plugins: `pip install 'jaxserve[gpu-targets]'` or `'jaxserve[tpu-targets]'`; the host's is always there. The
work is done in a child process, so the caller's JAX never loads them and its environment stays as it is.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from packaging.requirements import Requirement

from costmodel.compile.target_table import Target, find_target
from costmodel.compile.target_worker import DEFINE, FIT, Answer, Job, Request, answer, first_line
from costmodel.compile.xla import XlaTotals
from models.errors import UserError

CHILD = "import sys; from costmodel.compile.target_worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"


@dataclasses.dataclass(frozen=True)
class TargetProgram:
    """A program compiled for a target.

    Attributes:
      target: the chip as `costmodel.hardware.chips` names it; "cpu" or "host".
      chips: how many it runs on. All counts are of one of them.
      text: the optimised program, what `Compiled.as_text()` gives.
      totals: XLA's own counts, None where it gives none (for a GPU there is a memory analysis alone), and its memory in bytes.
      seconds: tracing, lowering and compiling took.
      versions: of jax, jaxlib and the compiler's package, by name.
    """

    target: str
    chips: int
    text: str = dataclasses.field(repr=False)
    totals: XlaTotals
    seconds: float
    versions: Mapping[str, str]

    def as_text(self) -> str:
        """The text, under the name that JAX's own compiled programs have it."""
        return self.text


def compile_for(
    target: str,
    function: Callable[..., Any],
    *abstract_args: Any,
    donate: Sequence[int] = (),
    mesh: Mapping[str, int] | None = None,
    specs: Sequence[Any] | None = None,
    out_specs: Any = None,
    timeout: float = 3600.0,
) -> TargetProgram:
    """Compile a function for a target. Several may be compiled at once, in threads.

    Args:
      target: a chip of `costmodel.compile.target_table.TARGETS` by any of its names (h100, v5e), "cpu": this machine's processor, or
        "host": the device that JAX uses here, in this very process.
      function: importable, for it is pickled: a function at the top of a module, or an instance of a class there.
      abstract_args: pytrees of `jax.ShapeDtypeStruct`.
      donate: numbers of the arguments whose memory the outputs may reuse.
      mesh: sizes of a mesh's axes by name, for a program that is partitioned over as many chips. The function is traced with that
        mesh in force.
      specs: with a mesh, for each argument a `PartitionSpec`, or a pytree of them that matches it or is a prefix of it; None is replicated.
      out_specs: the same for what the function returns; XLA chooses if None.
      timeout: seconds after which the compiler is stopped.

    Raises:
      UserError: an unknown chip, a missing or mismatched compiler, a function that cannot be pickled or traced, a program that does
        not fit the chip.
    """
    job = Job(
        function, abstract_args, tuple(donate), tuple((mesh or {}).items()), None if specs is None else tuple(specs), out_specs
    )
    if (specs is None) != (mesh is None) or (specs is not None and len(specs) != len(abstract_args)):
        raise UserError(
            f"compile_for: {len(specs or ())} specs are given for {len(abstract_args)} arguments, and {len(mesh or {})} axes of a mesh; "
            "give a mesh and one spec an argument, or neither"
        )
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    if target == "host":
        return _program("host", job, versions, answer(job, None, None))
    if target == "cpu":
        environment = {"JAX_NUM_CPU_DEVICES": str(job.chips)}
        return _program("cpu", job, versions, _in_child("cpu", Request(_pickled(job), None, None), environment, timeout))
    name, chip = find_target(target)
    versions[chip.package] = compiler_version(name, chip)
    request = Request(_pickled(job), chip.platform, chip.topology(job.chips))
    program = _program(name, job, versions, _in_child(name, request, chip.environment, timeout))
    _check_fit(name, chip, program)
    return program


def compiler_version(name: str, target: Target) -> str:
    """The version of the installed compiler of a target.

    Raises:
      UserError: it is not installed, or not in the version that the installed JAX asks for: another one may not load, and one that
        loads may write its programs' text in another form.
    """
    try:
        found = importlib.metadata.version(target.package)
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            f"no compiler for {name} is installed ({target.package}); run: pip install 'jaxserve[{target.extra}]'"
        ) from None
    for line in importlib.metadata.requires("jax") or ():
        wanted = Requirement(line)
        if wanted.name == target.package and wanted.marker and wanted.marker.evaluate({"extra": target.jax_extra}):
            if not wanted.specifier.contains(found, prereleases=True):
                raise UserError(
                    f"the compiler for {name}, {target.package} {found}, does not match jax {jax.__version__}, which needs "
                    f"{wanted.specifier}; run: pip install 'jax[{target.jax_extra}]=={jax.__version__}'"
                )
    return found


def _pickled(job: Job) -> bytes:
    """Raises UserError where another process could not load it."""
    if getattr(job.function, "__module__", None) == "__main__":
        raise UserError(f"compile_for: {job.function!r} is defined in the script that runs; {DEFINE}")
    try:
        return pickle.dumps(job)
    except Exception as error:
        raise UserError(f"compile_for: {job.function!r} cannot be pickled ({first_line(error)}); {DEFINE}") from error


def _in_child(name: str, request: Request, environment: Mapping[str, str], timeout: float) -> Answer:
    """Run the worker on a request. However this ends, Ctrl-C included, the child ends too, and its files with it: they have no names."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    variables = {**os.environ, **environment, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answered, tempfile.TemporaryFile() as log:
        asked.write(pickle.dumps(request))
        asked.seek(0)
        ends = asked.fileno(), answered.fileno()
        command = [sys.executable, "-P", "-c", CHILD, *map(str, ends)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=variables, pass_fds=ends)
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise UserError(f"compiling for {name} took longer than {timeout:g} s and was stopped; give more time") from None
        finally:
            child.kill()
            child.communicate()
        if code == 0:
            answered.seek(0)
            found: Answer = pickle.load(answered)
            return found
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
    died = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with code {code}"
    if code == -signal.SIGKILL:
        died += ", as a system does that is out of memory"
    raise UserError(f"the compiler for {name} {died}: {lines[-1].strip()}")


def _program(name: str, job: Job, versions: Mapping[str, str], found: Answer) -> TargetProgram:
    if found.error:
        raise UserError(f"compiling for {name}: {found.error}")
    return TargetProgram(name, job.chips, found.text, found.totals, found.seconds, versions)


def _check_fit(name: str, target: Target, program: TargetProgram) -> None:
    """A GPU's compiler does not mind how much memory a program takes. Raises UserError where the chip has less."""
    needed = program.totals.peak_bytes
    if target.memory is not None and needed is not None and needed > target.memory:
        raise UserError(
            f"compiling for {name}: it needs {needed / 1e9:.1f} GB of memory, and the chip has {target.memory / 1e9:.1f} GB; {FIT}"
        )
