"""Sizes, shards and counts. Oracles: figures by hand, a simulation of the router, XLA-free arithmetic of the papers."""

import dataclasses

import numpy as np
import pytest

from costmodel.arch.architecture import FLAX, Architecture, Experts
from costmodel.arch.catalog import find_architecture
from models.config.presets import PRESETS
from models.errors import UserError

LLAMA = Architecture.of(PRESETS["llama-3-8b"], "llama-3-8b")
ODD = dataclasses.replace(LLAMA, name="odd", heads=12, kv_heads=4, ffn=12)


def test_of_a_module():
    assert LLAMA.source == FLAX
    assert (LLAMA.parameter_count, LLAMA.multiplied) == (8_030_261_248, 7_504_658_432)
    assert sum(LLAMA.parameters.values()) == LLAMA.parameter_count
    assert LLAMA.parameters["embed"] == LLAMA.parameters["head"] == 128256 * 4096
    assert LLAMA.parameters["gate_up"] == 2 * LLAMA.parameters["down"] == 2 * 32 * 4096 * 14336
    assert LLAMA.parameters["norm"] == 65 * 4096
    assert Architecture.of(PRESETS["llama-3-8b"]).name == "llama"


def test_tied_and_untied():
    """cases.md: the parameters differ by V h, what is multiplied by nothing."""
    config = PRESETS["llama-3-8b"]
    tied = Architecture.of(dataclasses.replace(config, tied_head=True))
    assert LLAMA.parameter_count - tied.parameter_count == 128256 * 4096
    assert LLAMA.multiplied == tied.multiplied
    assert tied.head.component == "embed" and LLAMA.head.component == "head" and tied.head.shape == LLAMA.head.shape


def test_shards_of_a_degree():
    """Llama 3 8B has 8 KV heads: on 16 chips each holds one, half of them a second time."""
    shapes = {d: {w.name: LLAMA.shard(w, d) for w in LLAMA.weights} for d in (1, 8, 16)}
    assert [shapes[d]["attention.qkv.q"][0] for d in (1, 8, 16)] == [4096, 512, 256]
    assert [shapes[d]["attention.qkv.kv"][0] for d in (1, 8, 16)] == [2048, 256, 256]
    assert [shapes[d]["attention.out"] for d in (1, 8)] == [(4096, 4096), (4096, 512)]
    assert [shapes[d]["mlp.down"] for d in (8, 16)] == [(4096, 1792), (4096, 896)]
    assert shapes[8]["attention_norm"] == (4096,)
    assert [LLAMA.kv_vectors(d) for d in (1, 8, 16, 32)] == [(16, 128), (2, 128), (2, 128), (2, 128)]


def test_a_vocabulary_that_does_not_divide_is_padded():
    smol = find_architecture("smollm2-135m")
    odd = dataclasses.replace(smol, vocab=10)
    table = dataclasses.replace(smol.head, shape=(10, 576))
    assert odd.shard(table, 3) == (4, 576)


def test_a_latent_cache_belongs_to_no_head():
    deepseek = find_architecture("deepseek-v3")
    assert deepseek.kv_vectors(1) == deepseek.kv_vectors(16) == (1, 576)


@pytest.mark.parametrize(
    ("name", "degree", "message"),
    [
        ("llama-3-8b", 0, "tensor_parallel is 0; it must be at least 1"),
        ("llama-3-8b", 3, "attention heads 32 does not divide by tensor_parallel 3"),
        ("qwen3-0.6b", 3, "attention heads 16"),
        ("qwen2.5-0.5b", 7, "ffn width 4864 does not divide by tensor_parallel 7"),
        ("odd", 6, "4 KV heads neither divide by tensor_parallel 6 nor into it; give a divisor or a multiple of 4"),
        ("gemma-3-1b", 8, "attention heads 4 does not divide by tensor_parallel 8"),
        ("qwen3-30b-a3b", 64, "attention heads 32"),
        ("deepseek-v2-lite", 256, "attention heads 16"),
    ],
)
def test_degrees_that_do_not_divide(name, degree, message):
    with pytest.raises(UserError, match=message):
        (ODD if name == "odd" else find_architecture(name)).check_degree(degree)


def test_experts_must_be_wide_enough_to_divide():
    odd = dataclasses.replace(find_architecture("mixtral-8x7b"), experts=Experts(8, 2, 14337))
    with pytest.raises(UserError, match="expert width 14337 does not divide by tensor_parallel 2"):
        odd.check_degree(2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 30}, "30 attention heads do not divide into 8 KV heads"),
        ({"layers": 3}, "32 layer windows for 3 layers"),
        ({"hidden": 0}, "hidden is 0; it must be at least 1"),
        ({"experts": Experts(8, 9, 100)}, "top_k is 9; it must be from 1 to 8 experts"),
    ],
)
def test_sizes_that_no_model_has(change, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(LLAMA, **change)


@pytest.mark.parametrize(("count", "top_k"), [(8, 2), (128, 8), (5, 5)])
def test_distinct_experts_against_a_router_that_picks_evenly(count, top_k):
    """Simulated: T tokens draw top_k different experts each; the mean number of distinct ones, within 5 standard errors."""
    random, draws = np.random.default_rng(0), 2000
    for tokens in (1, 3, 20):
        picked = random.random((draws, tokens, count)).argsort(-1)[..., :top_k]
        distinct = np.array([len(np.unique(one)) for one in picked])
        error = 5 * distinct.std() / draws**0.5 + 1e-9
        assert abs(Experts(count, top_k, 1).distinct(tokens) - distinct.mean()) <= error
    assert Experts(count, top_k, 1).distinct(1) == pytest.approx(top_k)
    assert Experts(count, top_k, 1).distinct(10_000) == pytest.approx(count)
