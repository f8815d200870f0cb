"""One compiled function: traced, lowered and compiled, or taken as it is from the folder of compiled programs.

An entry holds the machine code and what the compiler said of it, so that a start that finds it neither traces nor lowers. Its key is all
that the machine code was made from: the function as data, the shapes of its arguments, this package's own source, versions, JAX's settings,
compiler flags, and the device; of a CPU its instruction sets too, for code of other ones would end the process.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import pickle
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import jax
from jax.experimental import serialize_executable
from jax.stages import Compiled

from costmodel.compile.xla import XlaTotals, loops, xla_totals
from costmodel.hardware.host import cores, process_start, processor
from jaxserve.programs.compile_cache import CompileCache

PACKAGES = ("costmodel", "jaxserve", "models")
VERSIONS = ("jax", "jaxlib", "flax", "numpy")
VARIABLES = ("XLA_", "LIBTPU_", "TF_", "NPROC", "PJRT_")  # prefixes of what compilers read from the environment


@dataclasses.dataclass(frozen=True)
class Executable:
    """A compiled function.

    Attributes:
      compiled: it.
      totals, loops: what the compiler said of it, see `costmodel.compile.xla`.
      seconds: until it was there.
      kept: it came from the folder.
    """

    compiled: Compiled
    totals: XlaTotals
    loops: int
    seconds: float
    kept: bool
    _text: bytes | None = None  # of the kept one: what JAX would write down of it now names other instructions

    @property
    def text(self) -> str:
        """The optimised program as it was compiled; empty where the backend gives none."""
        return (self.compiled.as_text() or "") if self._text is None else zlib.decompress(self._text).decode()


@dataclasses.dataclass(frozen=True)
class _Entry:
    """What the folder holds."""

    code: bytes
    trees: tuple[Any, Any]  # of the arguments and the outputs
    totals: XlaTotals
    loops: int
    text: bytes

    @classmethod
    def of(cls, made: Executable) -> Self:
        code, into, out = serialize_executable.serialize(made.compiled)
        return cls(code, (into, out), made.totals, made.loops, zlib.compress(made.text.encode(), 1))


def executable(
    function: Callable, arguments: tuple, what: Any, *, donate: int, cache: CompileCache | None = None
) -> Executable:
    """Compile a function ahead of time, or take it from a folder where it was kept.

    Args:
      function: it is a function of its arguments and of `what` alone.
      arguments: arrays, or their shapes; one of them is donated.
      what: the function as data that can be pickled, such as a dataclass of this package.
      donate: the number of the argument that the function may overwrite.
      cache: the folder. Nothing is written to it while JAX's own compilation cache is on: a program that came from there and is
        serialised again can't be run ("Function ... not found", jax 0.10.2), and JAX does not say which ones came from there.
    """
    start = time.perf_counter()
    key = None
    if cache and (device := _device(arguments)) and (key := program_key(arguments, what, donate, device)):
        if found := _taken(cache, key, device):
            return dataclasses.replace(found, seconds=time.perf_counter() - start)
    compiled = jax.jit(function, donate_argnums=donate).lower(*arguments).compile()
    made = Executable(compiled, xla_totals(compiled), loops(compiled), time.perf_counter() - start, False)
    settings = jax.config.values
    if cache and key and not (settings["jax_enable_compilation_cache"] and settings["jax_compilation_cache_dir"]):
        _keep(cache, key, made)
    return made


def program_key(arguments: tuple, what: Any, donate: int, device: jax.Device) -> str | None:
    """The name of an entry; None where it can't be said what it would be made from: then nothing is kept."""
    source = source_digest()
    leaves, tree = jax.tree.flatten(arguments)
    try:
        named = pickle.dumps((what, tree, [_aval(leaf) for leaf in leaves], donate), protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):  # a function that has no name, say
        return None
    return source and hashlib.sha256(named + f"{source}\n{_surroundings(device)}".encode()).hexdigest()


def _surroundings(device: jax.Device) -> str:
    """What else machine code depends on."""
    return repr(
        (
            sys.version,
            [(name, importlib.metadata.version(name)) for name in VERSIONS],
            sorted((name, repr(value)) for name, value in jax.config.values.items()),  # within a context, those of the context
            sorted((name, value) for name, value in os.environ.items() if name.startswith(VARIABLES)),
            (device.platform, device.device_kind, device.id, device.client.platform_version, jax.device_count()),
            (processor(), cores()),
        )
    )


@functools.cache
def source_digest() -> str | None:
    """Of all source of this package. None where it can't be read, or was changed since this process started: what runs may be older."""
    digest = hashlib.sha256()
    for name in PACKAGES:
        folder = Path(str(sys.modules[name].__file__)).parent
        files = sorted(folder.rglob("*.py"))
        if not files:
            return None
        for path in files:
            if path.stat().st_mtime > process_start():
                return None
            digest.update(f"{name} {path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _aval(leaf: Any) -> tuple:
    """All that a program fixes of an argument."""
    return leaf.shape, str(leaf.dtype), bool(getattr(leaf, "weak_type", False)), str(getattr(leaf, "sharding", None))


def _device(arguments: tuple) -> jax.Device | None:
    """Where the arguments live; None for several devices, whose programs are not kept."""
    found = set[jax.Device]().union(*(leaf.devices() for leaf in jax.tree.leaves(arguments) if isinstance(leaf, jax.Array)))
    return found.pop() if len(found) == 1 else None


def _taken(cache: CompileCache, key: str, device: jax.Device) -> Executable | None:
    content = cache.get(key)
    if content is None:
        return None
    try:
        entry: _Entry = pickle.loads(zlib.decompress(content))
        compiled = serialize_executable.deserialize_and_load(
            entry.code, *entry.trees, backend=device.platform, execution_devices=[device]
        )
    except Exception as error:  # whatever JAX has against it
        cache.broken(key, f"{type(error).__name__}: {error}".splitlines()[0][:200])
        return None
    return Executable(compiled, entry.totals, entry.loops, 0.0, True, entry.text)


def _keep(cache: CompileCache, key: str, made: Executable) -> None:
    try:
        content = zlib.compress(pickle.dumps(_Entry.of(made), protocol=5), 1)
    except Exception as error:  # a backend that can't write its programs down
        cache.refused(f"{type(error).__name__}: {error}".splitlines()[0][:200])
        return
    cache.put(key, content)
