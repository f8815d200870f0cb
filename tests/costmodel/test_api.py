"""The public API, as docs/cost.md shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")


def run(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_pages_program(program: str):
    assert run(program).startswith("memory 0.0058")  # 19.6 GB at 3.35 TB/s


def test_the_package_is_cheap_and_whole():
    """No JAX until it is needed; every name is there and none is the module of that name, whatever was loaded before."""
    source = """
import sys, types
import costmodel
assert "jax" not in sys.modules
import costmodel.ledger, costmodel.reconcile
from costmodel.study import Study
for name in costmodel.__all__:
    assert not isinstance(getattr(costmodel, name), types.ModuleType), name
assert callable(costmodel.ledger) and callable(costmodel.reconcile)
try:
    costmodel.legder
except AttributeError as error:
    assert "ledger" in str(error)
    print("fine")
"""
    assert run(source) == "fine\n"


@pytest.mark.slow
def test_the_three_calls_together():
    """A step of one's own: priced, compiled, and every byte of the difference named."""
    source = """
import jax, costmodel
from models.config.presets import PRESETS
program = costmodel.StepProgram.on("cpu", PRESETS["tiny"], ((2, 1),), 32)
compiled = jax.jit(program, donate_argnums=program.donate).lower(*program.abstract_args()).compile()
book = costmodel.ledger(compiled, trips=program.trips(32))
found = costmodel.reconcile(costmodel.step_cost(PRESETS["tiny"], batch=2, context=32, dtype="float32", chip="h100"), book)
assert found.unexplained < 1e-9 and found.compiled_seconds > 0
print(book.by_component()["qkv"].flops >= 2 * 2 * 16384)
"""
    assert run(source) == "True\n"
