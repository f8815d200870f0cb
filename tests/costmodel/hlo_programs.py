"""The programs in `programs/`: optimised HLO of our own steps and of small functions, with XLA's totals, so tests need no compiler.

They carry the version they came from. To compile them again, with the extras gpu-targets and tpu-targets:
``PYTHONPATH=. python -c 'from tests.costmodel.hlo_programs import main; main()'`` (compilers take functions of a module, not a script's).
Foreign programs are the better test: the folder ../shared/hlo beside the project, and those that HLO_PROGRAMS names, are tested too
(slow) where they are there; they have the same form.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import lzma
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from costmodel.program import StepProgram
from costmodel.targets import compile_for
from models.presets import PRESETS
from tests.costmodel.xla_oracle import xla_count

FOLDER = Path(__file__).parent / "programs"
_SHARED = Path(__file__).parents[3] / "shared" / "hlo"
FOREIGN = [Path(name) for name in os.environ.get("HLO_PROGRAMS", "").split(os.pathsep) if name]
FOREIGN += [_SHARED] if (_SHARED / "totals.json").exists() and _SHARED not in FOREIGN else []
FOLDERS = [FOLDER, *FOREIGN]
# Two layers of a small model: all that a step has, in texts of 15 kB.
SMALL = dataclasses.replace(PRESETS["smollm2-135m"], layers=2, windows=PRESETS["smollm2-135m"].windows[:2])


@functools.cache
def totals(folder: Path) -> dict[str, Any]:
    """File name without ".xz" -> what is known of the program: library, generic_count, compiled_cost_analysis, trips."""
    found: dict[str, Any] = json.loads((folder / "totals.json").read_text())
    return found


def cases(pattern: str = "") -> list[Any]:
    """(folder, name) of every program whose name has the pattern, as parameters of a test; foreign ones are slow."""
    return [
        pytest.param(folder, name, marks=() if folder == FOLDER else pytest.mark.slow, id=name.removesuffix(".hlo"))
        for folder in FOLDERS
        for name in sorted(totals(folder))
        if pattern in name
    ]


def program(name: str, folder: Path = FOLDER) -> str:
    """The text of a program."""
    return lzma.open(folder / f"{name}.xz", "rt", encoding="utf-8").read()


def eight_layers(x: jax.Array, w: jax.Array) -> jax.Array:
    """x [b, n] through eight matrices w [8, n, n], in a scan."""

    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ w), None

    return jax.lax.scan(layer, x, w)[0]


def with_bias(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """A matrix product and a bias, which a GPU's compiler gives to cuBLAS."""
    with jax.named_scope("out"):
        return x @ w + b


def shapes(*sizes: tuple[int, ...], dtype: Any = jnp.float32) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(size, dtype) for size in sizes)


def jobs() -> dict[str, tuple[str, Any, tuple[Any, ...]]]:
    """Name -> target, function, abstract arguments."""
    found: dict[str, tuple[str, Any, tuple[Any, ...]]] = {}
    for target in ("cpu", "h100", "v5e"):
        found[f"{target}_eight_layers"] = (target, eight_layers, shapes((4, 256), (8, 256, 256)))
    found["h100_with_bias"] = ("h100", with_bias, shapes((2, 73), (73, 256), (256,), dtype=jnp.bfloat16))
    for target, platform in (("cpu", "cpu"), ("h100", "gpu"), ("v5e", "tpu"), ("v6e", "tpu")):
        for attention in ("blockwise", "gather"):
            step = StepProgram.on(platform, SMALL, ((8, 1),), 256, attention=attention)  # type: ignore[arg-type]
            found[f"{target}_step_{attention}"] = (target, step, step.abstract_args())
    return found


def main() -> None:
    """Compile all programs and write them with their totals."""
    FOLDER.mkdir(exist_ok=True)
    known = {}
    for name, (target, function, arguments) in jobs().items():
        compiled = compile_for(target, function, *arguments, donate=getattr(function, "donate", ()))
        generic = xla_count(compiled.text)
        own = compiled.totals
        known[f"{name}.hlo"] = {
            "library": ", ".join(f"{package} {version}" for package, version in compiled.versions.items()),
            "generic_count": {
                "flops": generic.flops,
                "bytes accessed": generic.bytes,
                "transcendentals": generic.transcendentals,
            },
            "compiled_cost_analysis": None
            if own.bytes_accessed is None
            else {"flops": own.flops, "bytes accessed": own.bytes_accessed, "transcendentals": own.transcendentals},
            "trips": function.trips(200) if isinstance(function, StepProgram) else {},
        }
        with lzma.open(FOLDER / f"{name}.hlo.xz", "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as file:
            file.write(compiled.text.replace(f"{Path(__file__).parents[2]}/", ""))
        print(name, compiled.versions, known[f"{name}.hlo"])
    (FOLDER / "totals.json").write_text(json.dumps(known, indent=1) + "\n")
