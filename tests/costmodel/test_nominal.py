"""facts.md sections 2 and 3, to the digits printed there."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.chips import CHIPS
from costmodel.nominal import NominalProjection, nominal_of_model, nominal_step
from models.config import ModelConfig, RopeConfig
from models.errors import UserError

H100 = CHIPS["h100-sxm"]
P8, P70 = 8.0e9, 70.0e9


def config(layers: int) -> ModelConfig:
    """KV shapes of Llama 3: 8 KV heads of 128."""
    return ModelConfig(
        architecture="llama",
        vocab_size=128256,
        hidden=4096,
        layers=layers,
        heads=32,
        kv_heads=8,
        head_dim=128,
        ffn=14336,
        norm_eps=1e-5,
        max_positions=8192,
        rope=RopeConfig(),
        windows=(None,) * layers,
    )


KV8, KV70 = config(32).kv_bytes_per_token(2), config(80).kv_bytes_per_token(2)

ROWS = [  # B, t_mem ms, t_comp ms, FLOP/B, tok/s
    (1, 4.82, 0.02, 0.99, 207.6),
    (2, 4.86, 0.03, 1.97, 411.8),
    (4, 4.94, 0.06, 3.87, 810.3),
    (8, 5.10, 0.13, 7.50, 1569.7),
    (16, 5.42, 0.26, 14.11, 2953.6),
    (32, 6.06, 0.52, 25.23, 5282.1),
    (64, 7.34, 1.04, 41.64, 8719.0),
    (128, 9.90, 2.07, 61.72, 12923.5),
    (256, 15.03, 4.14, 81.33, 17029.5),
]


@pytest.mark.parametrize(("batch", "memory_ms", "compute_ms", "intensity", "tokens"), ROWS)
def test_8b_table(batch, memory_ms, compute_ms, intensity, tokens):
    step = nominal_step(P8, 2, KV8, batch, 1024)
    assert round(step.memory_seconds(H100) * 1e3, 2) == memory_ms
    assert round(step.compute_seconds(H100) * 1e3, 2) == compute_ms
    assert round(step.intensity, 2) == intensity
    assert round(float(step.tokens_per_second(H100)), 1) == tokens
    assert step.seconds(H100) == step.memory_seconds(H100)  # memory-bound at every batch


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_arrays_give_the_table_in_one_call(array):
    """int32 batches too: 256 * 131072 * 1024 does not fit 32 bits."""
    step = nominal_step(P8, 2, KV8, array([row[0] for row in ROWS], dtype=np.int32), 1024)
    np.testing.assert_allclose(step.seconds(H100) * 1e3, [row[1] for row in ROWS], atol=0.005)
    np.testing.assert_allclose(step.tokens_per_second(H100), [row[4] for row in ROWS], atol=0.051)


def test_traced_and_differentiated():
    def seconds(batch):
        return nominal_step(P8, 2, KV8, batch, 1024).seconds(H100)

    assert round(float(jax.jit(seconds)(64.0)) * 1e3, 2) == 7.34
    assert round(float(jax.grad(seconds)(64.0)) * 1e3, 6) == 0.040065
    step = jax.jit(lambda b: nominal_step(P8, 2, KV8, b, 1024))(64)
    assert round(float(step.intensity), 2) == 41.64


def test_8b_quantities():
    one = nominal_step(P8, 2, KV8, 1, 1024)
    assert (one.weight_bytes, one.flops, KV8, one.kv_bytes) == (16.0e9, 16.0e9, 131_072, 134_217_728)
    assert one.kv_bytes == 128 * 2**20
    assert round(one.compute_seconds(H100) * 1e3, 6) == 0.016178
    assert round(one.weight_bytes / H100.bandwidth * 1e3, 4) == 4.7761
    assert round(one.kv_bytes / H100.bandwidth * 1e3, 6) == 0.040065
    assert round(one.intensity_limit, 3) == 119.209
    assert one.intensity_limit < H100.ridge
    assert nominal_step(P8, 2, KV8, 4, 1).flops / 16e9 == 4  # weight-only intensity is B
    bound = one.flops / (one.weight_bytes / H100.bandwidth)
    assert (round(bound / 1e12, 2), round(100 * bound / H100.peak_16bit, 2)) == (3.35, 0.34)


def test_projection():
    p = NominalProjection(rows=32, inputs=4096, outputs=4096, itemsize=2)
    assert (p.weight_bytes, p.input_bytes, p.output_bytes, p.bytes) == (33_554_432, 262_144, 262_144, 34_078_720)
    assert p.flops == 1_073_741_824
    assert (round(p.intensity, 2), round(p.weight_intensity, 2)) == (31.51, 32.00)
    assert round(100 * (p.bytes / p.weight_bytes - 1), 1) == 1.6  # facts.md: "about 1.5 %"
    rows = np.array([1, 32, 4096])
    d, e = 4096, 1024
    ai = NominalProjection(rows, d, e, 4).intensity
    np.testing.assert_allclose(ai, 2 * rows * d * e / (4 * (d * e + rows * d + rows * e)))


def test_70b():
    one = nominal_step(P70, 2, KV70, 1, 1)
    assert (one.weight_bytes, one.flops) == (140e9, 140e9)
    assert one.weight_bytes > H100.memory
    read = one.weight_bytes / H100.bandwidth
    assert (round(read * 1e3, 1), round(1 / read, 1)) == (41.8, 23.9)
    rate = one.flops / read
    assert (round(rate / 1e12, 2), round(100 * rate / H100.peak_16bit, 2)) == (3.35, 0.34)
    assert H100.sparse_peak_16bit and round(100 * rate / H100.sparse_peak_16bit, 2) == 0.17
    many = nominal_step(P70, 2, KV70, 64, 8192)
    assert (many.flops, many.flops / many.weight_bytes) == (8.96e12, 64)
    assert (round(many.weight_bytes_per_row / 1e9, 2), int(64 / read)) == (2.19, 1531)
    assert KV70 / 80 == 4096
    assert round(many.kv_bytes / 64 / 1e9, 2) == 2.68
    assert many.kv_bytes / 64 > many.weight_bytes_per_row
    prefill = nominal_step(P70, 2, KV70, 4096, 1)
    assert prefill.flops / prefill.weight_bytes == 4096


def test_rows_of_different_context_and_windows():
    llama = config(32)
    same = nominal_of_model(llama, 8_000_000_000, np.full(64, 1024), weight_itemsize=2, kv_itemsize=2)
    assert dataclasses.astuple(same) == dataclasses.astuple(nominal_step(P8, 2, KV8, 64, 1024))
    mixed = nominal_of_model(llama, 8_000_000_000, np.array([1, 0, 1023]), weight_itemsize=2, kv_itemsize=2)
    assert (mixed.kv_bytes, mixed.rows, mixed.flops) == (KV8 * 1024, 3, 48e9)
    half = dataclasses.replace(llama, windows=(None, 256) * 16)
    windowed = nominal_of_model(half, 8_000_000_000, np.array([100, 1024]), weight_itemsize=2, kv_itemsize=2)
    assert windowed.kv_bytes == KV8 / 2 * (100 + 1024) + KV8 / 2 * (100 + 256)


def test_kv_bytes_count_kv_heads_not_query_heads():
    llama = config(32)
    assert dataclasses.replace(llama, kv_heads=32).kv_bytes_per_token(2) == 4 * llama.kv_bytes_per_token(2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch is 0; it must be above 0"),
        ({"parameters": -1}, "parameters is -1"),
        ({"weight_itemsize": 0}, "weight_itemsize is 0"),
    ],
)
def test_bad_numbers(change, message):
    arguments = {"parameters": P8, "weight_itemsize": 2, "kv_bytes_per_token": KV8, "batch": 1, "context": 1} | change
    with pytest.raises(UserError, match=message):
        nominal_step(**arguments)


def test_no_rows():
    with pytest.raises(UserError, match="rows is 0"):
        nominal_of_model(config(1), 1, np.array([]), weight_itemsize=2, kv_itemsize=2)
