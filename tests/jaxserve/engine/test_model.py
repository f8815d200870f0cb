"""Which dtype is taken, and a model made ready. Oracle: a fake race whose winner is known, and the config's own limits."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import pytest

from costmodel.hardware.ceilings import DtypeChoice
from jaxserve.engine import model as module
from jaxserve.engine.model import MEASURED_ROWS, choose_dtype, load_model
from models.errors import UserError


def race(monkeypatch: pytest.MonkeyPatch, f32: float, bf16: float) -> list[Sequence[int]]:
    """Let f32 take `f32` seconds and bfloat16 `bf16`; the rows that were asked for are kept."""
    asked: list[Sequence[int]] = []

    def fake(rows: Sequence[int]) -> DtypeChoice:
        asked.append(rows)
        return DtypeChoice(
            "here", "2026-01-31", 0.0, list(rows), {"float32": [f32] * len(rows), "bfloat16": [bf16] * len(rows)}
        )

    monkeypatch.setattr(module, "default_dtype", fake)
    return asked


def test_auto_takes_what_was_measured_to_be_fastest_and_says_so(monkeypatch: pytest.MonkeyPatch):
    asked = race(monkeypatch, 3.0, 1.5)
    dtype, why = choose_dtype("auto", 8)
    assert dtype == "bfloat16" and "2.00 times the speed of float32" in why and "2026-01-31" in why
    assert asked == [(8,)]
    race(monkeypatch, 1.0, 2.5)
    dtype, why = choose_dtype("auto", 8)
    assert dtype == "float32" and "2.50 times the speed of bfloat16" in why


def test_no_race_of_a_hundred_thousand_rows(monkeypatch: pytest.MonkeyPatch):
    asked = race(monkeypatch, 1.0, 2.0)
    choose_dtype("auto", 100_000)
    assert asked == [(MEASURED_ROWS,)]


def test_what_is_asked_for_is_not_measured(monkeypatch: pytest.MonkeyPatch):
    asked = race(monkeypatch, 1.0, 2.0)
    assert choose_dtype("bfloat16", 8) == ("bfloat16", "as asked") and not asked
    with pytest.raises(UserError, match=r"dtype 'int3' is not supported; give auto, float32 or bfloat16"):
        choose_dtype("int3", 8)


def test_an_accelerator_takes_bfloat16(monkeypatch: pytest.MonkeyPatch):
    asked = race(monkeypatch, 1.0, 2.0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    dtype, why = choose_dtype("auto", 8)
    assert dtype == "bfloat16" and "gpu" in why and not asked


def test_load_reports_every_byte():
    seen: list[int] = []
    model = load_model("random:tiny", dtype="bfloat16", context=32, progress=seen.append)
    assert sum(seen) == model.weight_bytes and model.name == "random:tiny" and model.dtype == "bfloat16"
    assert model.serving.angles["full"].shape[0] == 32
    assert model.empty_pool(2, 4, "bfloat16").compute == "float32"  # on a CPU; 16-bit products are slow there


@pytest.mark.parametrize("context", [0, 1025])
def test_a_context_that_the_model_has_not(context: int):
    with pytest.raises(UserError, match=f"--context is {context}; random:tiny takes 1 to 1024 tokens"):
        load_model("random:tiny", dtype="float32", context=context)


def test_unknown_layers():
    with pytest.raises(UserError, match=r"layers 'rolled' is unknown; give auto, unrolled, scanned"):
        load_model("random:tiny", dtype="float32", context=8, layers="rolled")
