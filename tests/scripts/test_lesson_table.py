"""The lesson's table three ways. Oracles: facts.md section 2, and the table of another implementation in docs/xla-table.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.lesson_table import main, nominal
from tests.costmodel.test_facts import ROWS

KEPT = Path(__file__).resolve().parents[2] / "docs" / "experiments" / "lesson-table.md"


@pytest.mark.parametrize(("batch", "memory_ms", "compute_ms", "intensity", "tokens"), ROWS)
def test_the_nominal_column_is_the_lesson(batch: int, memory_ms: float, compute_ms: float, intensity: float, tokens: float):
    assert nominal(batch).cells == (f"{memory_ms:.2f}", f"{intensity:.2f}", f"{tokens:,.1f}")


def test_what_is_kept():
    """All nine batches, with date, versions and command; the nominal figures are those of the facts."""
    text = KEPT.read_text()
    assert (
        "python -m scripts.lesson_table" in text and "jax 0." in text and "date 20" in text and "jax-cuda13-plugin 0." in text
    )
    table = text.partition("## What the program moves")[0]
    rows = {
        cells[0]: cells
        for line in table.splitlines()
        if (cells := [c.strip() for c in line.split("|")[1:-1]]) and cells[0].isdigit()
    }
    assert list(rows) == [str(row[0]) for row in ROWS]
    for batch, memory_ms, _, intensity, tokens in ROWS:
        row = rows[str(batch)]
        assert (row[1], row[4], row[7]) == (f"{memory_ms:.2f}", f"{intensity:.2f}", f"{tokens:,.1f}")
        full, compiled = float(row[2]), float(row[3])
        assert full < compiled, "no program moves less than a perfect one"


@pytest.mark.targets
@pytest.mark.slow
def test_compiled_for_an_h100(capsys: pytest.CaptureFixture[str]):
    """With gather attention at batch 8 the traffic is 1.17 of weights and KV (docs/xla-table.md), of which the full model consists."""
    pytest.importorskip("jax_plugins.xla_cuda13", reason="pip install 'jaxserve[gpu-targets]'")
    main.main(["--batch", "8", "--attention", "gather", "--json"], standalone_mode=False)
    found: Any = json.loads(capsys.readouterr().out)
    (row,) = found["rows"]
    assert row["compiled"]["bytes"] / row["full"]["bytes"] == pytest.approx(1.17, abs=0.03)
