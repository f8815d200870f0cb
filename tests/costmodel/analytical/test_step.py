"""Whole steps. Oracles: counts that came with programs that are not ours, laws between kinds of steps, and finite differences in f64."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.analytical.step import step_cost
from costmodel.arch.architecture import Architecture
from costmodel.hardware.chips import CHIPS
from models.config.presets import PRESETS

TOTALS = Path(__file__).parents[4] / "shared" / "hlo" / "totals.json"
H100 = CHIPS["h100-sxm"]
ALL_16_BIT = {"default": "bfloat16", "vectors": "bfloat16"}


@pytest.mark.skipif(
    not TOTALS.exists(), reason="needs ../shared/hlo, the programs and totals that are handed over beside this repository"
)
def test_against_the_counts_of_other_peoples_programs():
    """Llama 3 8B with 2, 4 or 32 layers, all in bf16. Where definitions agree the numbers do; `bytes` leaves out activations."""
    entries = json.loads(TOTALS.read_text(encoding="utf-8"))
    seen = set()
    for entry in entries.values():
        layers, theirs = entry["layers"], entry["analytical"]
        seen.add((layers, entry["batch"]))
        config = dataclasses.replace(PRESETS["llama-3-8b"], layers=layers, windows=(None,) * layers)
        a = Architecture.of(config)
        cost = step_cost(a, batch=entry["batch"], context=entry["context"], dtype=ALL_16_BIT)
        t = {term.name: term for term in cost.terms}
        matmuls = sum(t[name].flops for name in ("qkv", "out", "gate_up", "down", "head"))
        attention = t["attention scores"].flops + t["attention values"].flops
        rows = t["embedding rows"].bytes
        ours = {
            "P_all": a.parameter_count,
            "P_mm": a.multiplied,
            "flops_mm": matmuls,
            "flops_attn": attention,
            "flops": matmuls + attention,
            "bytes_w": cost.weight_bytes - rows,
            "bytes_kv_read": t["KV read"].bytes,
            "bytes_kv_write": t["KV write"].bytes,
            "bytes": cost.weight_bytes + cost.kv_bytes,
        }
        assert ours == {name: theirs[name] for name in ours}, entry
        # What they leave out, norms and softmax and the like, is below half a percent of the FLOPs.
        assert 1 < cost.flops / theirs["flops"] < 1.005
    assert {layers for layers, _ in seen} == {2, 4, 32} and len(seen) >= 10


def test_the_two_levels_differ_by_what_they_say():
    """Nominal charges the embedding as if it were read and multiplied, and nothing but weights and cache."""
    full = step_cost("llama-3-8b", batch=32, context=1024, dtype=ALL_16_BIT)
    nominal = step_cost("llama-3-8b", batch=32, context=1024, detail="nominal")
    table = 128256 * 4096
    assert nominal.weight_bytes == 2 * 8_030_261_248
    assert full.weight_bytes == nominal.weight_bytes - 2 * table + 32 * 4096 * 2
    assert nominal.kv_bytes == {t.name: t for t in full.terms}["KV read"].bytes
    assert nominal.flops == 2 * 32 * 8_030_261_248 and nominal.activation_bytes == 0


def test_nominal_windows_formats_and_chips():
    gemma = step_cost("gemma-3-1b", batch=2, context=1000, detail="nominal", dtype="int8", kv_dtype="float8")
    assert gemma.weight_bytes == 999_885_952 and gemma.kv_bytes == 2 * (4 * 1000 + 22 * 512) * 2 * 256
    one, each = (step_cost("llama-3-70b", batch=2, context=9, detail="nominal", tensor_parallel=n) for n in (1, 16))
    assert (16 * each.bytes, 16 * each.flops) == (one.bytes, one.flops)  # idealised: no head is held twice
    assert step_cost("tiny", batch=1, context=1, detail="nominal", dtype="float32").terms[0].compute == "float32"


MODELS = st.sampled_from(["llama-3-8b", "gemma-3-1b", "mistral-7b"])


@settings(max_examples=30, deadline=None)
@given(MODELS, st.lists(st.integers(1, 6000), min_size=1, max_size=5))
def test_rows_of_their_own_add_up(model, contexts):
    """Weights are read once and everything else is the sum of the rows."""
    together = step_cost(model, contexts=contexts)
    alone = [step_cost(model, batch=1, context=c) for c in contexts]
    assert together.flops == pytest.approx(sum(c.flops for c in alone), rel=1e-12)
    assert together.kv_bytes == sum(c.kv_bytes for c in alone)
    assert together.sequences == together.tokens == len(contexts)
    assert step_cost(model, contexts=[contexts[0]] * 3).bytes == step_cost(model, batch=3, context=contexts[0]).bytes


@settings(max_examples=30, deadline=None)
@given(MODELS, st.integers(1, 8), st.integers(0, 7), st.integers(8, 3000))
def test_verification_is_the_work_of_as_many_decode_steps_on_one_read(model, batch, drafts, context):
    verify = step_cost(model, batch=batch, context=context, kind="verify", drafts=max(drafts, 1))
    steps = [step_cost(model, batch=batch, context=context - i) for i in range(max(drafts, 1) + 1)]
    assert verify.flops == pytest.approx(sum(s.flops for s in steps), rel=1e-12)
    assert verify.weight_bytes < steps[0].weight_bytes * 1.01
    assert verify.tokens == batch * (max(drafts, 1) + 1) and verify.sequences == batch
    reads = {t.name: t.bytes for t in verify.terms}["KV read"]
    decode = {t.name: t.bytes for t in steps[0].terms}["KV read"]
    assert decode <= reads <= decode * (1 + 8 / min(context, 512))


@settings(max_examples=30, deadline=None)
@given(MODELS, st.integers(1, 64), st.integers(1, 3000), st.integers(1, 500), st.integers(0, 2000))
def test_a_mixed_step_is_both_on_one_read(model, batch, context, chunk, before):
    mixed = step_cost(model, batch=batch, context=context, kind="mixed", chunk=chunk, prompt_context=before + chunk, prompts=2)
    decode = step_cost(model, batch=batch, context=context)
    prefill = step_cost(model, batch=2, context=before + chunk, chunk=chunk, kind="prefill")
    assert mixed.flops == pytest.approx(decode.flops + prefill.flops, rel=1e-12)
    assert mixed.kv_bytes == pytest.approx(decode.kv_bytes + prefill.kv_bytes, rel=1e-12)
    assert mixed.activation_bytes == pytest.approx(decode.activation_bytes + prefill.activation_bytes, rel=1e-12)
    once = {t.name: t.bytes for t in decode.terms if t.kind == "weights" and t.name != "embedding rows"}
    assert {t.name: t.bytes for t in mixed.terms if t.name in once} == once
    assert (mixed.tokens, mixed.sequences) == (batch + 2 * chunk, batch + 2)


def test_bucket_cliff():
    """cases.md: 4096 prompt tokens fill the bucket of 4096; 13 more fall into that of 8192, where nearly half of the rows are padding.

    By hand: linear layers double and attention, which grows with the square, quadruples.
    """
    fits = step_cost("llama-3-8b", batch=1, context=4096, kind="prefill", padded_chunk=4096)
    cliff = step_cost("llama-3-8b", batch=1, context=4109, kind="prefill", padded_chunk=8192)
    assert fits.waste == 0 and fits.flops == step_cost("llama-3-8b", batch=1, context=4096, kind="prefill").flops
    assert cliff.flops == pytest.approx(step_cost("llama-3-8b", batch=1, context=8192, kind="prefill").flops)
    live = step_cost("llama-3-8b", batch=1, context=4109, kind="prefill").flops
    assert cliff.waste == pytest.approx(1 - live / cliff.flops) and 0.5 < cliff.waste < 0.56
    by_name = {t.name: t for t in cliff.terms}
    assert by_name["qkv, padding"].flops / (by_name["qkv"].flops + by_name["qkv, padding"].flops) == (8192 - 4109) / 8192
    assert "head, padding" not in by_name and by_name["qkv, padding"].bytes == 0  # one row of logits; weights are read once
    assert (cliff.tokens, cliff.sequences) == (4109, 1)  # live ones
    seconds = [cost.seconds(H100) for cost in (fits, cliff)]
    assert seconds[1] / seconds[0] > 2


def test_padded_rows_are_multiplied_and_hold_nothing():
    padded = step_cost("llama-3-8b", batch=5, context=1000, padded_batch=8)
    live, eight = (step_cost("llama-3-8b", batch=b, context=1000) for b in (5, 8))
    by_name = {t.name: t for t in padded.terms}
    assert by_name["qkv"].flops + by_name["qkv, padding"].flops == {t.name: t for t in eight.terms}["qkv"].flops
    assert padded.kv_bytes == live.kv_bytes and padded.weight_bytes - live.weight_bytes == 3 * 4096 * 2
    rows = step_cost("llama-3-8b", contexts=[1000] * 5, padded_batch=8)
    assert (rows.flops, rows.bytes) == (padded.flops, padded.bytes)
    assert padded.tokens == 5
    chunks = step_cost("llama-3-8b", contexts=[30, 40], chunk=[10, 20], kind="prefill", padded_chunk=32, padded_batch=4)
    by_name = {t.name: t for t in chunks.terms}
    assert by_name["qkv, padding"].flops == by_name["qkv"].flops / 30 * (4 * 32 - 30)
    drafts = step_cost("llama-3-8b", batch=3, context=9, drafts=2, kind="verify", padded_batch=4)
    by_name = {t.name: t for t in drafts.terms}
    assert by_name["head, padding"].flops == by_name["head"].flops / 3


def seconds_of(chip=H100, batch=64.0, context=1024.0, **more):
    return step_cost("mistral-7b", batch=batch, context=context, chip=chip, **more).seconds()


@pytest.mark.parametrize("detail", ["full", "nominal"])
def test_gradients_are_those_of_finite_differences(detail):
    """Central differences of the f64 function; bound by memory at this batch, so the slope by bandwidth is -t / bandwidth."""
    for name, at in (("batch", 64.0), ("context", 1024.0)):
        numeric = (seconds_of(**{name: at * 1.001}, detail=detail) - seconds_of(**{name: at * 0.999}, detail=detail)) / (
            0.002 * at
        )
        slope = jax.grad(lambda x, name=name: seconds_of(**{name: x}, detail=detail))(at)
        assert float(slope) == pytest.approx(numeric, rel=1e-4)
    slope = jax.grad(lambda b: seconds_of(dataclasses.replace(H100, bandwidth=b), detail=detail))(3.35e12)
    assert float(slope) == pytest.approx(-seconds_of(detail=detail) / 3.35e12, rel=1e-4)
    by_peak = jax.grad(
        lambda p: seconds_of(dataclasses.replace(H100, peaks={"bfloat16": p}), kind="prefill", batch=1.0, detail=detail)
    )
    assert float(by_peak(989e12)) == pytest.approx(-seconds_of(kind="prefill", batch=1.0, detail=detail) / 989e12, rel=1e-4)


def test_experts_can_be_differentiated_by_batch():
    def moved(batch):
        return step_cost("mixtral-8x7b", batch=batch, context=100.0).weight_bytes

    assert float(jax.grad(moved)(3.0)) == pytest.approx((moved(3.001) - moved(2.999)) / 0.002, rel=1e-4)


def test_arrays_of_numpy_and_jax_broadcast():
    batch, context = np.array([[1], [8], [64]]), np.array([100, 8000], np.int32)
    table = step_cost("mistral-7b", batch=batch, context=context, chip=H100)
    mapped = jax.jit(lambda b, c: step_cost("mistral-7b", batch=b, context=c, chip=H100).seconds())(jnp.asarray(batch), context)
    assert table.seconds().shape == mapped.shape == (3, 2) and table.bound().shape == (3, 2)
    for i, b in enumerate((1, 8, 64)):
        for j, c in enumerate((100, 8000)):
            alone = seconds_of(batch=b, context=c)
            assert table.seconds()[i, j] == alone and float(mapped[i, j]) == pytest.approx(alone, rel=1e-6)


def test_rows_of_their_own_in_a_sweep():
    contexts = jnp.array([[10, 20, 30], [1, 5000, 2]])
    mapped = jax.vmap(lambda c: step_cost("gemma-3-1b", contexts=c).kv_bytes)(contexts)
    expected = [step_cost("gemma-3-1b", contexts=np.asarray(c)).kv_bytes for c in contexts]
    np.testing.assert_allclose(mapped, expected, rtol=1e-6)
    np.testing.assert_array_equal(step_cost("gemma-3-1b", contexts=np.asarray(contexts)).kv_bytes, expected)


def test_bounds_of_real_steps():
    """Decode waits for memory, prefill for arithmetic, and a small batch over PCIe for the links."""
    assert step_cost("llama-3-8b", batch=32, context=1024, chip="h100").bound() == "memory"
    assert step_cost("llama-3-8b", batch=1, context=4096, kind="prefill", chip="h100").bound() == "compute"
    assert step_cost("llama-3-8b", batch=1, context=4096, kind="prefill", chip="l4", tensor_parallel=8).bound() == "link"


def test_a_measured_host():
    """The chip may be any value, not only one of the table."""
    host = dataclasses.replace(H100, name="host", bandwidth=20e9, peaks={"float32": 100e9, "bfloat16": 300e9})
    cost = step_cost("smollm2-135m", batch=1, context=10, dtype="float32", chip=host)
    assert cost.memory_seconds() == cost.bytes / 20e9 and cost.compute_seconds() == cost.flops / 100e9
