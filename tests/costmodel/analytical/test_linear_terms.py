"""Terms of the layers that meet each token by itself. Oracle: shapes multiplied out by hand."""

import dataclasses

import pytest

from costmodel.analytical.step import step_cost
from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import find_architecture
from models.config.presets import PRESETS


def terms(model="llama-3-8b", batch=32, context=1, **more):
    return {t.name: t for t in step_cost(model, batch=batch, context=context, **more).terms if not t.padding}


def test_llama_weights_and_activations():
    """32 rows, 32 layers, hidden 4096, ffn 14336, 6144 rows of qkv, 128256 tokens; bf16 matrices, f32 norms."""
    t = terms()
    assert t["qkv"].bytes == 32 * 6144 * 4096 * 2 and t["qkv"].flops == 2 * 32 * 32 * 6144 * 4096
    assert t["qkv activations"].bytes == 32 * 32 * (4096 + 6144) * 2  # the input is read once for q, k and v
    assert t["gate_up"].bytes == 32 * 28672 * 4096 * 2 and t["down"].flops == 2 * 32 * 32 * 14336 * 4096
    assert t["down activations"].bytes == 32 * 32 * (14336 + 4096) * 2
    assert t["norms"].bytes == 65 * 4096 * 4 and t["norms"].flops == 4 * 65 * 4096 * 32
    assert t["norm activations"].bytes == 4 * 65 * 4096 * 32 * 2
    assert t["activation function"].flops == 5 * 32 * 32 * 14336
    assert (t["embedding rows"].bytes, t["embedding rows"].flops) == (32 * 4096 * 2, 0)
    assert t["embedding activations"].bytes == 32 * 4096 * 2
    assert t["head"].bytes == 128256 * 4096 * 2 and t["head"].flops == 2 * 32 * 128256 * 4096
    assert t["logits"].bytes == t["sampling"].bytes == 4 * 32 * 128256


def test_components_are_those_of_all_witnesses():
    known = {"embed", "norm", "qkv", "rope", "kv_write", "kv_read", "scores", "softmax", "values", "out", "gate_up", "down",
             "router", "experts", "head", "sample", "collectives"}  # fmt: skip
    for model in ("llama-3-8b", "deepseek-v3"):
        cost = step_cost(model, batch=4, context=64, tensor_parallel=8)
        assert set(cost.by_component()) <= known
        assert all(t.formula and t.source for t in cost.terms)
        assert {t.kind for t in cost.terms} == {"weights", "kv", "activations", "none"}


def test_tied_head():
    """cases.md: without a head of its own the model has V h fewer weights to hold, and as many to read and multiply."""
    untied = PRESETS["llama-3-8b"]
    tied = Architecture.of(dataclasses.replace(untied, tied_head=True))
    a, b = step_cost(untied, batch=8, context=100), step_cost(tied, batch=8, context=100)
    assert (a.flops, a.bytes) == (b.flops, b.bytes)
    assert Architecture.of(untied).parameter_count - tied.parameter_count == 128256 * 4096


def test_biases_and_norms_of_queries():
    """Qwen 2.5 0.5B: 14 heads and 2 KV heads of 64, 24 layers. Qwen 3 0.6B: 16 and 8 of 128, 28 layers, hidden 1024."""
    qwen2 = terms("qwen2.5-0.5b", batch=3)["qkv"]
    rows = (14 + 2 * 2) * 64
    assert qwen2.bytes == 24 * (rows * 896 * 2 + rows * 4) and qwen2.flops == 24 * (2 * rows * 896 + rows) * 3
    norms = terms("qwen3-0.6b", batch=3)["norms"]
    assert norms.flops == 4 * 3 * (57 * 1024 + 28 * (16 + 8) * 128) and norms.bytes == 4 * (57 * 1024 + 28 * 2 * 128)


@pytest.mark.parametrize(
    ("dtype", "size"),  # B of the down projection, [4096 outputs, 14336 inputs]
    [("int8", 4096 * 14336 + 4096 * 4), ("int4-g128", 4096 * 14336 / 2 + 4096 * 112 * 2), ("q4_1", 4096 * 448 * 20)],
)
def test_quantised_weights_move_their_scales(dtype, size):
    t = terms(dtype=dtype)
    assert t["down"].bytes == 32 * size and t["down"].flops == terms()["down"].flops and t["down"].compute == "bfloat16"


def test_a_quantised_embedding_is_read_by_rows():
    assert terms(dtype="q8_0", batch=3)["embedding rows"].bytes == 3 * 4096 / 32 * 34


def test_formats_and_peaks_by_component():
    t = terms(dtype={"default": "float8", "head": "bfloat16", "vectors": "bfloat16"})
    assert (t["down"].compute, t["head"].compute, t["attention scores"].compute) == ("float8", "bfloat16", "bfloat16")
    assert t["norms"].bytes == 65 * 4096 * 2 and t["down"].bytes == 32 * (4096 * 14336 + 4)
    assert terms(dtype="int8", compute="int8")["down"].compute == "int8"


def test_mixtral():
    """8 experts of 3 matrices 4096 x 14336, 2 a token: at batch 1 two are read, at 1000 all."""
    expert = 3 * 4096 * 14336
    assert terms("mixtral-8x7b", batch=1)["experts"].bytes == pytest.approx(32 * 2 * expert * 2)
    assert terms("mixtral-8x7b", batch=1000)["experts"].bytes == pytest.approx(32 * 8 * expert * 2)
    four = terms("mixtral-8x7b", batch=4)["experts"]
    assert four.bytes == pytest.approx(32 * 8 * (1 - 0.75**4) * expert * 2) and four.flops == 2 * 32 * 2 * expert * 4
    assert terms("mixtral-8x7b", batch=4)["router"].flops == 2 * 32 * 8 * 4096 * 4
    assert "gate_up" not in terms("mixtral-8x7b")


@pytest.mark.parametrize(("model", "active"), [("mixtral-8x7b", 12.9e9), ("qwen3-30b-a3b", 3.3e9), ("deepseek-v3", 37e9)])
def test_a_token_multiplies_the_published_active_parameters(model, active):
    """Published with the embedding, which is looked up; to the digits of the papers."""
    multiplied = sum(t.flops for t in terms(model, batch=1).values() if t.kind == "weights" and t.component != "norm") / 2
    embedding = find_architecture(model).parameters["embed"]
    assert multiplied + embedding == pytest.approx(active, rel=0.02)


def test_deepseek_shared_and_dense():
    """58 layers of one shared expert and 8 of 256, 2048 wide; 3 layers of an MLP 18432 wide; hidden 7168."""
    t = terms("deepseek-v3", batch=1)
    assert t["experts"].bytes == pytest.approx(58 * 9 * 3 * 7168 * 2048 * 2)
    assert t["experts"].flops == 2 * 58 * 9 * 3 * 7168 * 2048
    assert t["gate_up"].flops == 2 * 3 * 2 * 7168 * 18432


def test_tensor_parallel_llama_70b():
    """8 chips: an eighth of each matrix, all of the norms; ring sums of hidden 8192 twice a layer and once for the embedding."""
    one, each = terms("llama-3-70b", batch=64), terms("llama-3-70b", batch=64, tensor_parallel=8)
    for name in ("qkv", "out", "gate_up", "down", "head"):
        assert (each[name].flops, each[name].bytes) == (one[name].flops / 8, one[name].bytes / 8)
    assert each["norms"].bytes == one["norms"].bytes and each["embedding rows"].bytes == one["embedding rows"].bytes / 8
    assert each["all-reduces"].link_bytes == 2 * 7 / 8 * 161 * 64 * 8192 * 2
    assert each["logits all-gather"].link_bytes == 7 / 8 * 64 * 128256 * 4
    assert "all-reduces" not in one


def test_a_parallel_block_reduces_once_a_layer():
    each = terms("palm-540b", batch=64, tensor_parallel=16)
    assert each["all-reduces"].link_bytes == 2 * 15 / 16 * 119 * 64 * 18432 * 2


def test_kv_heads_that_are_held_twice_are_multiplied_twice():
    """Llama 3 8B on 16 chips: 2 query heads and one KV head of 128 each, though 8 KV heads over 16 chips would be half of one."""
    each = terms(tensor_parallel=16)["qkv"]
    assert each.flops == 2 * 32 * 32 * (2 + 2 * 1) * 128 * 4096
