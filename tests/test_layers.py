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


COMMANDS = {"__main__"}  # `python -m` of a room: above all rooms, as the commands that lie beside them are
ABOVE = ("jaxserve.options",)  # declares options of commands


def modules() -> dict[str, Path]:
    """Full name -> file, of the three floors."""
    found = {}
    for path in (path for floor in ("models", "costmodel", "jaxserve") for path in sources(floor)):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def known(source: str, package: str, names: dict[str, Path]) -> set[str]:
    """The modules among `names` that a source imports, but for those that it needs for types alone."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found = imports(ast.unparse(ast.fix_missing_locations(tree)), package)
    return {name for name in found if name in names and names[name].name != "__init__.py"}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of nodes that reach each other, of at least two."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(node: str, to: dict[str, set[str]], out: list[str]) -> None:
        stack = [(node, iter(sorted(to.get(node, ()))))]
        seen.add(node)
        while stack:
            at, rest = stack[-1]
            if (following := next((each for each in rest if each not in seen), None)) is None:
                out.append(at)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(sorted(to.get(following, ())))))

    for node in sorted(edges):
        if node not in seen:
            visit(node, edges, order)
    back: dict[str, set[str]] = {}
    for node, targets in edges.items():
        for target in targets:
            back.setdefault(target, set()).add(node)
    seen.clear()
    found = []
    for node in reversed(order):
        if node not in seen:
            part: list[str] = []
            visit(node, back, part)
            if len(part) > 1:
                found.append(sorted(part))
    return found


def test_the_circles_are_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(circles(edges)) == [["a", "b", "c"], ["d", "e"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}}) == []


def graph() -> dict[str, set[str]]:
    names = modules()
    return {
        name: known(path.read_text(encoding="utf-8"), name if path.name == "__init__.py" else name.rpartition(".")[0], names)
        for name, path in names.items()
    }


def test_no_circle_of_modules():
    assert not circles(graph())


def test_no_circle_of_rooms():
    """A room is the first two parts of a name. Files beside the rooms are judged as they are, and a room's `__main__` too."""

    def room(name: str) -> str:
        parts = name.split(".")
        return name if len(parts) < 3 or parts[-1] in COMMANDS else ".".join(parts[:2])

    edges: dict[str, set[str]] = {}
    for name, targets in graph().items():
        edges.setdefault(room(name), set()).update({room(target) for target in targets} - {room(name)})
    assert not circles(edges)


@pytest.mark.parametrize("floor", ["models", "costmodel", "jaxserve"])
def test_few_files_lie_beside_the_rooms(floor: str):
    assert len([path for path in (ROOT / floor).glob("*.py") if path.name not in ("__init__.py", "__main__.py")]) <= 15


PRINT = {  # rooms that print; every other room hands its results on
    "costmodel.cli",
    "costmodel.terminal",
    "jaxserve.bucketing",
    "jaxserve.calibration",
    "jaxserve.generation",
    "jaxserve.load",
    "jaxserve.main_job",
    "jaxserve.recorded_service",
    "jaxserve.simulated_load",
    "jaxserve.sizing",
    "jaxserve.steplog",
}


def test_only_commands_and_rooms_that_print_know_the_terminal():
    found = {".".join(name.split(".")[:2]) for name, to in graph().items() if any("costmodel.terminal." in each for each in to)}
    rooms = {name for name in found if (ROOT / name.replace(".", "/")).is_dir()}
    assert rooms <= PRINT, rooms - PRINT
