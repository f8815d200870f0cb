"""Optimised programs as test data, with XLA's totals, so that tests need no compiler: of steps in `fixtures/`, of functions in `programs/`.

They carry the version they came from. Our steps are made by `python -m scripts.make_hlo_fixtures`; the functions below, with the extras
gpu-targets and tpu-targets, by ``PYTHONPATH=. python -c 'from tests.costmodel.hlo_programs import main; main()'`` (compilers take functions
of a module, not a script's). Foreign programs are the better test: the folder ../shared/hlo beside the project, and those that HLO_PROGRAMS
names, are tested too (slow) where they are there; they have the form of `programs/`.
"""

from __future__ import annotations

import functools
import json
import lzma
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from costmodel.compile.targets import compile_for
from costmodel.ledger.ledger import Ledger, ledger
from scripts import make_hlo_fixtures

STEPS = make_hlo_fixtures.FOLDER
FUNCTIONS = Path(__file__).parent / "programs"
_SHARED = Path(__file__).parents[3] / "shared" / "hlo"
FOREIGN = [Path(name) for name in os.environ.get("HLO_PROGRAMS", "").split(os.pathsep) if name]
FOREIGN += [_SHARED] if (_SHARED / "totals.json").exists() and _SHARED not in FOREIGN else []
FOLDERS = [FUNCTIONS, STEPS, *FOREIGN]


@functools.cache
def totals(folder: Path) -> dict[str, Any]:
    """Name -> what is known of the program, among it generic_count and compiled_cost_analysis (or None), both by XLA's names, and trips."""
    read = json.loads((folder / "totals.json").read_text())
    return {name.removesuffix(".hlo"): _known(of) for name, of in read.items()}


def _known(of: dict[str, Any]) -> dict[str, Any]:
    """What is known of a program in one form; steps of ours have the fields of `costmodel.compile.xla.XlaTotals`."""
    if "generic" not in of:
        return {"trips": {}, **of}
    names = {"flops": "flops", "bytes accessed": "bytes_accessed", "transcendentals": "transcendentals"}
    own = {name: of["compiled"][field] for name, field in names.items()}
    return {**of, "generic_count": of["generic"], "compiled_cost_analysis": None if own["flops"] is None else own}


def cases(folders: Sequence[Path] = FOLDERS) -> list[Any]:
    """(folder, name) of every program as parameters of a test; foreign ones and those of more rows of the same step are slow."""
    return [
        pytest.param(folder, name, marks=pytest.mark.slow if folder in FOREIGN or name.endswith("_B32") else (), id=name)
        for folder in folders
        for name in sorted(totals(folder))
    ]


def program(name: str, folder: Path = STEPS) -> str:
    """The text of a program."""
    return lzma.open(folder / f"{name}.hlo.xz", "rt", encoding="utf-8").read()


@functools.cache
def kept(name: str, folder: Path = STEPS) -> Ledger:
    """The ledger of a program, with the trip counts that are known of its loops."""
    return ledger(program(name, folder), totals(folder)[name]["trips"] or None)


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
    return found


def main() -> None:
    """Compile the functions and write them with their totals."""
    FUNCTIONS.mkdir(exist_ok=True)
    known = {}
    for name, (target, function, arguments) in jobs().items():
        compiled, own = compile_for(target, function, *arguments), None
        if compiled.totals.flops is not None:
            counts = compiled.totals
            own = {"flops": counts.flops, "bytes accessed": counts.bytes_accessed, "transcendentals": counts.transcendentals}
        library = ", ".join(f"{package} {version}" for package, version in compiled.versions.items())
        known[name] = {
            "library": library,
            "generic_count": make_hlo_fixtures.generic_count(compiled.text),
            "compiled_cost_analysis": own,
        }
        with lzma.open(FUNCTIONS / f"{name}.hlo.xz", "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as file:
            file.write(compiled.text.replace(f"{Path(__file__).parents[2]}/", ""))
        print(name, compiled.versions, known[name])
    (FUNCTIONS / "totals.json").write_text(json.dumps(known, indent=1) + "\n")
