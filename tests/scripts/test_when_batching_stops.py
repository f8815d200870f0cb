"""When batching stops helping. Oracles: bandwidth and arithmetic by hand, and the formula of the batch that forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.when_batching_stops import Bench, kv_bound, main, prefill_bound, sparse

BENCH = Bench.of("smollm2-135m", "l4")
KEPT = Path(__file__).resolve().parents[2] / "docs" / "experiments" / "when-batching-stops.md"


def test_kv_bound_keeps_to_the_limit(monkeypatch: pytest.MonkeyPatch):
    """Never above bandwidth over KV of a row; with more rows nearer to it; KV's share of the bytes rises with them."""
    monkeypatch.setattr("scripts.when_batching_stops.CAPS", (1, 16))
    rows = [row.values for row in kv_bound(BENCH, 512)]
    share = [int(str(row["of the KV limit"]).rstrip("%")) for row in rows]
    assert 0 < share[0] < share[1] <= 100 and float(rows[1]["tok/s"]) > float(rows[0]["tok/s"])
    kv, weights = BENCH.token * (384 + 129 / 2), BENCH.weights  # of a row on average: a prompt of 384 and half of 128 and one
    batch = float(rows[1]["rows a step"])
    assert rows[1]["KV of the bytes"] == f"{kv * batch / (kv * batch + weights):.0%}"


def test_prefill_bound_gains_nothing():
    """One at a time takes a prompt's step and one decode step; however many there are, no more than that decode step can be shared."""
    bench = Bench.of("llama-3-8b", "h100")  # where arithmetic bounds a prompt, so that more of them at once save nothing of it
    rows = [row.values for row in prefill_bound(bench, 10)]
    rates = [float(row["prompts/s, flooded"]) for row in rows if row["policy"] == "continuous"]
    prompt = float(bench.placement.step("full", 1, 4096, "prefill").seconds())
    token = float(bench.placement.step("full", 1, 4097).seconds())
    assert rates[0] == pytest.approx(1 / (prompt + token), rel=1e-3)
    assert rates[0] < max(rates) < 1 / prompt


def test_sparse_arrivals_find_nobody():
    """A row in a step whatever the cap; a batch of 8 would form in (8 - 1) / (2 x 0.01 / s) = 350 s on average."""
    rows = [row.values for row in sparse(BENCH, 0.01, 8)]
    assert [row["cap"] for row in rows] == [1, 8, 64] and all(float(row["rows a step"]) < 1.1 for row in rows)
    assert rows[1]["mean wait for a full batch s"] == 350.0


@pytest.mark.slow
def test_the_page(capsys: pytest.CaptureFixture[str]):
    main.main(["--model", "smollm2-135m", "--chip", "l4", "--requests", "20", "--json"], standalone_mode=False)
    found: Any = json.loads(capsys.readouterr().out)
    assert (
        {row["context"] for row in found["kv"]} == {512, 2048, 8192} and found["prefill"] and found["sparse"] and found["date"]
    )


def test_what_is_kept():
    """The page says how it was made, and that at 8,192 tokens a cap beyond what fits changes nothing."""
    text = KEPT.read_text()
    assert "python -m scripts.when_batching_stops" in text and "jax " in text and "date " in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| 8,192 ")]
    large = [row[2:7] for row in rows if int(row[1]) >= 64]
    assert len(large) == 3 and large[0] == large[1] == large[2]
