"""Compiling one program for a chip that may not be here: what runs in the child process of `costmodel.compile.targets`.

The child reads a pickled `Request` from one open file and leaves an `Answer` in another.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from jax.stages import Compiled

from costmodel.compile.xla import XlaTotals, xla_totals
from models.errors import UserError

DEFINE = "define it at the top of a module that can be imported: another process has to find it there"
FIT = "take a smaller batch or context, more chips, or fewer layers and extrapolate (costmodel.compiled.extrapolate)"


@dataclasses.dataclass(frozen=True)
class Job:
    """A function to compile, as it is handed to `costmodel.compile.targets.compile_for`, whose arguments these are."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donate: tuple[int, ...]
    mesh: tuple[tuple[str, int], ...]
    specs: tuple[Any, ...] | None
    out_specs: Any

    @property
    def chips(self) -> int:
        return math.prod(size for _, size in self.mesh)

    def compile(self, devices: Sequence[Any], platform: str | None) -> Compiled:
        """For the first device of `devices`, or for a mesh of the first ones. `platform` is what JAX calls theirs if they are not here."""
        if not self.mesh:
            where: Any = SingleDeviceSharding(devices[0])
            return self._compile(platform, where, where)
        if self.chips > len(devices):
            raise UserError(f"a mesh of {self.chips} devices is asked for, and there are {len(devices)}; give a smaller mesh")
        names, sizes = zip(*self.mesh, strict=True)
        mesh = Mesh(np.array(devices[: self.chips]).reshape(sizes), names)

        def place(specs: Any) -> Any:
            def one(spec: PartitionSpec | None) -> NamedSharding:
                return NamedSharding(mesh, spec or PartitionSpec())

            return jax.tree.map(one, specs, is_leaf=lambda s: s is None or isinstance(s, PartitionSpec))

        with jax.set_mesh(mesh):
            return self._compile(platform, place(self.specs), None if self.out_specs is None else place(self.out_specs))

    def _compile(self, platform: str | None, into: Any, out: Any) -> Compiled:
        jitted = jax.jit(self.function, donate_argnums=self.donate, in_shardings=into, out_shardings=out)
        return jitted.trace(*self.arguments).lower(lowering_platforms=(platform,) if platform else None).compile()


@dataclasses.dataclass(frozen=True)
class Request:
    """A job, its platform as JAX names it, and what `get_topology_desc` takes; None of both: the devices of the process."""

    job: bytes  # pickled by itself, so that a function that cannot be found is told from all else that may go wrong
    platform: str | None
    topology: Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came of it: a program, or one line that says why there is none."""

    text: str = ""
    totals: XlaTotals = dataclasses.field(default_factory=XlaTotals)
    seconds: float = 0.0
    error: str = ""


def answer(job: Job, platform: str | None, topology: Mapping[str, Any] | None) -> Answer:
    """Compile. Whatever is wrong with the job is in the answer and not raised."""
    try:
        devices = jax.devices() if topology is None else describe(topology)
        start = time.perf_counter()
        compiled = job.compile(devices, platform)
        seconds = time.perf_counter() - start
        return Answer(compiled.as_text() or "", xla_totals(compiled), seconds)
    except UserError as error:
        return Answer(error=str(error))
    except Exception as error:
        return Answer(error=full(error) or f"{type(error).__name__}: {first_line(error)}")


def answer_request(request: Request) -> Answer:
    try:
        job = pickle.loads(request.job)
    except Exception as error:
        return Answer(error=f"the function cannot be loaded by the process that compiles ({first_line(error)}); {DEFINE}")
    return answer(job, request.platform, request.topology)


def describe(topology: Mapping[str, Any]) -> Sequence[Any]:
    """The devices of a topology that is not here. All that is used of JAX's interface for this, which is experimental."""
    try:
        return topologies.get_topology_desc(**topology).devices
    except Exception as error:
        raise UserError(
            f"JAX {jax.__version__} cannot describe {topology['platform']} {topology['topology_name']}: {first_line(error)}"
        ) from error


def full(error: Exception) -> str:
    """A TPU compiler's refusal of a program that does not fit, in one line; "" for any other error. It comes in two forms."""
    size = r"([\d.]+[KMGT]?)"
    for form in (rf"Used {size} of {size} hbm", rf"temporaries \({size}\) exceeds available HBM \({size}\)"):
        if found := re.search(form, str(error)):
            return f"it needs {found[1]}iB of memory, and the chip has {found[2]}iB for programs; {FIT}"
    return ""


def first_line(error: Exception) -> str:
    """The first line of a message that says anything."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def main(asked: int, answered: int) -> None:
    """Answer the request in one file in the other; both are descriptors. All that the child process does."""
    # Ctrl-C reaches all processes of a terminal, and one within XLA would not notice it before the compilation ends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The parent holds the other end of our input: when it ends, in whatever way, so do we.
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    with open(asked, "rb") as file:
        request = pickle.load(file)
    with open(answered, "wb") as file:
        pickle.dump(answer_request(request), file)
