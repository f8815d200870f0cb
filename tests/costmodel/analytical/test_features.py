"""The coefficients of a step's figures. Oracle: `step_cost` itself, of random mixed and verifying steps, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.analytical.features import StepFeatures, attended, coefficients
from costmodel.analytical.step import step_cost
from costmodel.arch.catalog import as_architecture
from costmodel.hardware.chips import find_chip
from models.errors import UserError

# Plain; windows on some layers; on all; experts; experts and a latent cache; several chips; the attention of PaLM.
MODELS: dict[str, dict[str, Any]] = {
    "llama-3-8b": {},
    "tiny": {"dtype": "float32"},
    "gemma-3-1b": {"kv_dtype": "float8"},
    "mistral-7b": {"dtype": "int8", "kv_dtype": "int8"},
    "mixtral-8x7b": {"kv_dtype": "float8"},
    "qwen3-30b-a3b": {"dtype": "q4_1"},
    "deepseek-v2-lite": {"dtype": "q4_k"},
    "deepseek-v3": {},
    "llama-3-70b": {"tensor_parallel": 8, "dtype": "float8"},
    "palm-62b": {"tensor_parallel": 4},
}
H100 = find_chip("h100")


def roofs(name: str, options: dict[str, Any], features: StepFeatures) -> list[float]:
    """Seconds of memory, compute and links by the coefficients."""
    architecture = as_architecture(name)
    met = float(architecture.experts.distinct(features.tokens)) if architecture.experts else 0.0
    figures = [1.0, met, features.tokens, features.samples, *features.attention]
    return [sum(a * b for a, b in zip(one, figures, strict=bool(one))) for one in coefficients(architecture, H100, **options)]


def expected(cost: Any) -> list[float]:
    return [float(cost.memory_seconds()), float(cost.compute_seconds()), float(cost.link_seconds())]


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 300),
    context=st.integers(1, 3000),
    prompts=st.integers(1, 8),
    chunk=st.integers(1, 2000),
    before=st.integers(0, 1500),
    empty=st.integers(0, 40),
)
def test_a_mixed_step(name: str, batch: int, context: int, prompts: int, chunk: int, before: int, empty: int):
    """Padded rows are multiplied, and hold nothing in the cache."""
    architecture, options = as_architecture(name), MODELS[name]
    most = architecture.max_positions
    context, chunk = min(context, most), min(chunk, most)
    before = min(before, most - chunk)
    cost = step_cost(
        name,
        kind="mixed",
        batch=batch,
        context=context,
        prompts=prompts,
        chunk=chunk,
        prompt_context=before + chunk,
        padded_batch=batch + empty,
        chip=H100,
        **options,
    )
    windows = tuple(dict.fromkeys(architecture.windows))
    rows = [batch * figure for figure in attended([(context - 1, 1)], windows)]
    pieces = [prompts * figure for figure in attended([(before, chunk)], windows)]
    features = StepFeatures(batch + empty + prompts * chunk, batch + empty + prompts, (*rows, *pieces))
    assert roofs(name, options, features) == pytest.approx(expected(cost), rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_a_verifying_step(name: str):
    """Every token has logits; rows of several lengths, one of them within a window and one beyond."""
    architecture, options = as_architecture(name), MODELS[name]
    contexts, query = np.array([9, 100, min(2000, architecture.max_positions)]), 5
    cost = step_cost(name, kind="verify", contexts=contexts, drafts=query - 1, chip=H100, **options)
    windows = tuple(dict.fromkeys(architecture.windows))
    rows = attended([(int(context) - query, query) for context in contexts], windows)
    nothing = [0.0] * len(rows)
    features = StepFeatures(3 * query, 3 * query, (*rows, *nothing))
    assert roofs(name, options, features) == pytest.approx(expected(cost), rel=1e-9)


def test_a_lone_chip_sends_nothing():
    assert coefficients(as_architecture("llama-3-8b"), H100).link == ()
    assert any(coefficients(as_architecture("llama-3-8b"), H100, tensor_parallel=2).link)


def test_what_a_figure_costs_by_hand():
    """One token of Llama 3 8B in 16 bits: 2 FLOP for each of its matrices but the table and the head; a key and value of 131,072 B."""
    found = coefficients(as_architecture("llama-3-8b"), H100)
    one, met, _, samples, entering, read, pairs, *_ = found.memory
    assert met == 0 and entering * 3.35e12 == pytest.approx(131_072) and read * 3.35e12 == pytest.approx(131_072) and pairs == 0
    assert samples * 3.35e12 == pytest.approx(2 * 4 * 128_256 + 2 * 4096)  # logits written and read, and the input of the head
    # All weights but the table, which is indexed; the 65 norms are in 32 bits.
    assert one * 3.35e12 == pytest.approx(2 * (8_030_261_248 - 128_256 * 4096) + 2 * 65 * 4096)
    compute = found.compute
    assert compute[6] * 989e12 == pytest.approx(32 * 32 * (2 * 128 + 2 * 128 + 5))  # a pair, in all layers and heads
    assert compute[0] == 0 and compute[3] * 989e12 == pytest.approx(128_256 * (2 * 4096 + 1))


def test_bad_input():
    with pytest.raises(UserError, match="unknown dtype 'int3'"):
        coefficients(as_architecture("llama-3-8b"), H100, dtype="int3")
    with pytest.raises(UserError, match="does not divide by tensor_parallel 5"):
        coefficients(as_architecture("llama-3-8b"), H100, tensor_parallel=5)
