"""The nominal step from figures alone. Its numbers for the models of facts.md are in `test_facts.py`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.analytical.nominal import nominal_of_model, nominal_step
from costmodel.hardware.chips import CHIPS
from models.config.presets import PRESETS
from models.errors import UserError

H100 = CHIPS["h100-sxm"]
LLAMA = PRESETS["llama-3-8b"]
P8, KV8 = 8.0e9, LLAMA.kv_bytes_per_token(2)


def figures(cost):
    return cost.weight_bytes, cost.kv_bytes, cost.flops, cost.tokens


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_arrays_in_one_call(array):
    """int32 batches too: 256 * 131072 * 1024 does not fit 32 bits."""
    step = nominal_step(P8, 2, KV8, array([1, 8, 64, 256], dtype=np.int32), 1024)
    np.testing.assert_allclose(step.seconds(H100) * 1e3, [4.82, 5.10, 7.34, 15.03], atol=0.005)
    np.testing.assert_allclose(step.tokens_per_second(H100), [207.6, 1569.7, 8719.0, 17029.5], atol=0.051)


def test_traced_and_differentiated():
    def seconds(batch):
        return nominal_step(P8, 2, KV8, batch, 1024).seconds(H100)

    assert round(float(jax.jit(seconds)(64.0)) * 1e3, 2) == 7.34
    assert round(float(jax.grad(seconds)(64.0)) * 1e3, 6) == 0.040065
    step = jax.jit(lambda b: nominal_step(P8, 2, KV8, b, 1024))(64)
    assert round(float(step.intensity), 2) == 41.64


def test_f32_weights_are_held_against_the_f32_peak():
    assert nominal_step(P8, 4, KV8, 1, 1).compute_seconds(H100) == 16e9 / 67e12
    assert nominal_step(P8, 2, KV8, 1, 1).compute_seconds(H100) == 16e9 / 989e12


def test_rows_of_different_context_and_windows():
    same = nominal_of_model(LLAMA, 8_000_000_000, np.full(64, 1024), weight_itemsize=2, kv_itemsize=2)
    assert figures(same) == figures(nominal_step(P8, 2, KV8, 64, 1024))
    mixed = nominal_of_model(LLAMA, 8_000_000_000, np.array([1, 0, 1023]), weight_itemsize=2, kv_itemsize=2)
    assert (mixed.kv_bytes, mixed.tokens, mixed.flops) == (KV8 * 1024, 3, 48e9)
    half = dataclasses.replace(LLAMA, windows=(None, 256) * 16)
    windowed = nominal_of_model(half, 8_000_000_000, np.array([100, 1024]), weight_itemsize=2, kv_itemsize=2)
    assert windowed.kv_bytes == KV8 / 2 * (100 + 1024) + KV8 / 2 * (100 + 256)


def test_a_prefill_row_has_many_tokens():
    chunk = nominal_of_model(LLAMA, 8_000_000_000, np.array([300, 200]), weight_itemsize=2, kv_itemsize=2, tokens=256)
    assert figures(chunk) == (16e9, KV8 * 500, 2 * 8e9 * 256, 256) and chunk.sequences == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "nominal step: batch is 0; it must be above 0"),
        ({"batch": np.array([1, -3])}, "nominal step: batch is -3"),
        ({"parameters": -1}, "nominal step: parameters is -1"),
        ({"weight_itemsize": 0}, "nominal step: weight_itemsize is 0"),
        ({"context": 0}, "nominal step: context is 0"),
    ],
)
def test_bad_numbers(change, message):
    arguments = {"parameters": P8, "weight_itemsize": 2, "kv_bytes_per_token": KV8, "batch": 1, "context": 1} | change
    with pytest.raises(UserError, match=message):
        nominal_step(**arguments)


def test_no_rows():
    with pytest.raises(UserError, match="rows is 0"):
        nominal_of_model(LLAMA, 1, np.array([]), weight_itemsize=2, kv_itemsize=2)
