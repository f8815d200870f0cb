"""Law 7: imports point downwards only, wherever in a file they stand.

Oracle: the syntax tree of every file, so lazy imports inside functions, relative ones and `importlib.import_module("...")`
count too. The rules are tried on made-up sources first, so that a checker that sees nothing cannot pass.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "models": {"costmodel", "jaxserve", "scripts", "tests"},
    "costmodel": {"jaxserve", "scripts", "tests"},
    "jaxserve": {"scripts", "tests"},
    "scripts": {"tests"},  # a script may share a module with its neighbours
}
PLAIN = (  # plain Python, no accelerator library
    *(f"jaxserve/{room}" for room in ("kv", "scheduling", "speculative", "text", "load", "reporting", "steplog", "sizing")),
    *(f"jaxserve/{room}" for room in ("simulator", "simulated_load")),
    *(
        f"jaxserve/{name}.py"
        for name in (
            *("values", "vllm_names", "sampling_params", "version"),
            *("generate", "simulate", "size", "replay", "buckets", "calibrate"),
            *("engine/config", "engine/sequence", "programs/bucket", "programs/buckets", "programs/dispatch"),
            *("bucketing/economics", "deployment/deployment", "deployment/lengths"),
        )
    ),
)
ACCELERATED = {"jax", "jaxlib", "flax", "chex", "optax"}


def imports(source: str, package: str) -> set[str]:
    """Full names of all modules that `source`, a module of `package`, imports; names taken from a package count as modules."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                found.add(node.args[0].value)
    return found


def roots(path: Path) -> set[str]:
    package = ".".join(path.relative_to(ROOT).parent.parts)
    return {name.split(".")[0] for name in imports(path.read_text(encoding="utf-8"), package)}


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize(
    ("source", "package", "expected"),
    [
        ("import costmodel.compile.xla as x", "models", "costmodel.compile.xla"),
        ("from jaxserve import step", "costmodel", "jaxserve.step"),
        ("def f():\n    if 1:\n        from costmodel.hardware.chips import CHIPS", "models", "costmodel.hardware.chips"),
        ("from . import config", "models", "models.config"),
        ("from .gguf import read", "models.checkpoint", "models.checkpoint.gguf"),
        ("from ..config import X", "models.checkpoint", "models.config"),
        ("from ...jaxserve import step", "models.checkpoint", "jaxserve.step"),
        ("import importlib\nimportlib.import_module('scripts.bench')", "jaxserve", "scripts.bench"),
        ("__import__('jaxserve')", "models", "jaxserve"),
    ],
)
def test_the_checker_sees(source: str, package: str, expected: str) -> None:
    assert expected in imports(source, package)


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_no_upward_import(folder: str) -> None:
    broken = {str(path.relative_to(ROOT)): sorted(bad) for path in sources(folder) if (bad := roots(path) & FORBIDDEN[folder])}
    assert not broken, f"imports against the floors of the house: {broken}"


def test_the_packages_are_there() -> None:
    assert all(sources(folder) for folder in ("models", "costmodel", "jaxserve"))


def test_plain_modules_import_no_jax() -> None:
    files = [path for entry in PLAIN for path in ([ROOT / entry] if entry.endswith(".py") else sources(entry))]
    assert all(path.exists() for path in files) and all(map(sources, (entry for entry in PLAIN if not entry.endswith(".py"))))
    broken = {str(path.relative_to(ROOT)): sorted(bad) for path in files if (bad := roots(path) & ACCELERATED)}
    assert not broken, f"plain Python modules that import an accelerator library: {broken}"
