"""Sections 1 to 4 of facts.md by the public functions, to the digits printed there. Section 1 is in `test_chips.py` too."""

import numpy as np
import pytest

from costmodel.analytical.step import step_cost
from costmodel.arch.catalog import find_architecture
from costmodel.capacity import fit, kv_pool
from costmodel.hardware.chips import CHIPS

H100, A100 = CHIPS["h100-sxm"], CHIPS["a100-sxm-80gb"]
KV8 = 131_072  # B of K and V of a token
GIB = 2**30

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


def nominal_8b(batch, context=1024, **more):
    return step_cost("llama-3-8b", batch=batch, context=context, chip="h100", detail="nominal", parameters=8.0e9, **more)


def nominal_70b(batch, context=1, **more):
    return step_cost("llama-3-70b", batch=batch, context=context, chip="h100", detail="nominal", parameters=70.0e9, **more)


def test_section_1_ridges_are_dense():
    assert (round(A100.ridge, 1), round(H100.ridge, 1)) == (153.0, 295.2)
    assert (A100.peak("bfloat16"), H100.peak("bfloat16"), H100.sparse_peaks["bfloat16"]) == (312e12, 989e12, 1979e12)
    assert (A100.bandwidth, H100.bandwidth) == (2.039e12, 3.35e12)


@pytest.mark.parametrize(("batch", "memory_ms", "compute_ms", "intensity", "tokens"), ROWS)
def test_section_2_table(batch, memory_ms, compute_ms, intensity, tokens):
    step = nominal_8b(batch)
    assert round(step.memory_seconds() * 1e3, 2) == memory_ms
    assert round(step.compute_seconds() * 1e3, 2) == compute_ms
    assert round(step.intensity, 2) == intensity
    assert round(float(step.tokens_per_second()), 1) == tokens
    assert step.bound() == "memory"  # at every batch
    assert step.memory_seconds() * 1e3 == pytest.approx(4.7761 + batch * 0.040065, abs=1e-4)
    assert step.compute_seconds() * 1e3 == pytest.approx(batch * 0.016178, rel=3e-5)


def test_section_2_table_in_one_call():
    step = nominal_8b(np.array([row[0] for row in ROWS]))
    assert [round(float(x) * 1e3, 2) for x in step.seconds()] == [row[1] for row in ROWS]
    assert [round(float(x), 1) for x in step.tokens_per_second()] == [row[4] for row in ROWS]
    assert set(step.bound()) == {"memory"}


def test_section_2_quantities():
    one = nominal_8b(1)
    assert (one.weight_bytes, one.flops, one.kv_bytes) == (16.0e9, 16.0e9, 134_217_728)
    assert one.kv_bytes == 128 * 2**20 == 1024 * KV8
    assert (round(one.compute_seconds() * 1e3, 6), round(one.weight_bytes / H100.bandwidth * 1e3, 4)) == (0.016178, 4.7761)
    assert round(one.kv_bytes / H100.bandwidth * 1e3, 6) == 0.040065
    assert round(one.intensity_limit, 3) == 119.209 and one.intensity_limit < H100.ridge
    assert [nominal_8b(b).flops / nominal_8b(b).weight_bytes for b in (1, 4, 64)] == [1, 4, 64]  # weights alone: B FLOP/B
    bound = one.flops / (one.weight_bytes / H100.bandwidth)
    assert (round(bound / 1e12, 2), round(100 * bound / H100.peak("bfloat16"), 2)) == (3.35, 0.34)


def test_section_2_projection():
    """4096 x 4096 at 32 rows: the output projection of one layer of Llama 3 8B, with its activations."""
    terms = {term.name: term for term in step_cost("llama-3-8b", batch=32, context=1).terms}
    weights, activations = terms["out"], terms["out activations"]
    assert (weights.bytes / 32, activations.bytes / 32, weights.flops / 32) == (33_554_432, 2 * 262_144, 1_073_741_824)
    both = weights.bytes + activations.bytes
    assert both / 32 == 34_078_720
    assert (round(weights.flops / both, 2), round(weights.flops / weights.bytes, 2)) == (31.51, 32.00)
    assert round(100 * (both / weights.bytes - 1), 1) == 1.6  # facts.md: "about 1.5 %"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_section_2_intensity_of_any_projection(dtype):
    """AI(B) = 2 B d d' / (s (d d' + B d + B d')): the down projection, d = 14336 and d' = 4096, over many B."""
    batch, d, e, s = np.array([1, 32, 4096]), 14336, 4096, {"bfloat16": 2, "float32": 4}[dtype]
    terms = {term.name: term for term in step_cost("llama-3-8b", batch=batch, context=1, dtype=dtype).terms}
    found = terms["down"].flops / (terms["down"].bytes + terms["down activations"].bytes)
    np.testing.assert_allclose(found, 2 * batch * d * e / (s * (d * e + batch * d + batch * e)), rtol=1e-12)


def test_section_3_one_row():
    one = nominal_70b(1)
    assert (one.weight_bytes, one.flops) == (140e9, 140e9)
    read = one.weight_bytes / H100.bandwidth
    assert (round(read * 1e3, 1), round(1 / read, 1)) == (41.8, 23.9)
    rate = one.flops / read
    assert (round(rate / 1e12, 2), round(100 * rate / H100.peak("bfloat16"), 2)) == (3.35, 0.34)
    assert round(100 * rate / H100.sparse_peaks["bfloat16"], 2) == 0.17  # for display


def test_section_3_batch_of_64():
    many = nominal_70b(64, 8192)
    assert (many.flops, many.flops / many.weight_bytes) == (8.96e12, 64)
    assert (round(many.weight_bytes_per_row / 1e9, 2), int(64 / (many.weight_bytes / H100.bandwidth))) == (2.19, 1531)
    llama = find_architecture("llama-3-70b")
    assert (llama.layers, llama.kv_heads, llama.head_dim) == (80, 8, 128)
    assert nominal_70b(1, 1).kv_bytes / 80 == 4096
    assert round(many.kv_bytes / 64 / 1e9, 2) == 2.68 and many.kv_bytes / 64 > many.weight_bytes_per_row


def test_section_3_prefill_is_a_batch_of_its_tokens():
    prefill = nominal_70b(1, 4096, kind="prefill")
    assert prefill.tokens == prefill.flops / prefill.weight_bytes == 4096


def test_section_3_does_not_fit():
    alone = fit("llama-3-70b", "h100", parameters=70e9)
    assert not alone.fits and alone.weights == 140e9 and alone.least == 2
    assert alone.verdict == (
        "llama-3-70b does not fit one h100-sxm of 80 GB: 140.0 GB of weights; "
        "the smallest that does is tensor-parallel degree 2"
    )
    with_pool = fit("llama-3-70b", "h100", parameters=70e9, pool=30 * GIB)  # 172 GB: two chips have 160
    assert with_pool.least == 4 and fit("llama-3-70b", "h100", parameters=70e9, pool=30 * GIB, tensor_parallel=4).fits


def test_section_4_sizing():
    pool = kv_pool("llama-3-8b", 30 * GIB)
    assert pool.token == KV8
    assert (pool.sequence(1024) / GIB, pool.sequences(1024)) == (0.125, 240)
    assert {b: b * pool.sequence(1024) / GIB for b in (64, 128, 256)} == {64: 8, 128: 16, 256: 32}
    assert {b: pool.over(b, 1024) / GIB for b in (64, 128, 256)} == {64: 0, 128: 0, 256: 2}
    assert [round(nominal_8b(b).seconds() * 1e3, 2) for b in (64, 128)] == [7.34, 9.90]
    assert fit("llama-3-8b", "h100", parameters=8.0e9, pool=pool.size).fits
