"""Terms of the cache and of attention. Oracle: pairs and bytes counted by hand."""

import dataclasses

import pytest

from costmodel.analytical.step import step_cost
from costmodel.arch.architecture import Architecture
from models.config.presets import PRESETS


def terms(model="llama-3-8b", **more):
    return {t.name: t for t in step_cost(model, **({"batch": 32, "context": 1024} | more)).terms}


def test_llama():
    """32 layers of 32 heads over 8 KV heads of 128, bf16."""
    t = terms()
    assert t["KV read"].bytes == 32 * 1024 * 131_072 and t["KV write"].bytes == 32 * 131_072
    assert t["attention scores"].flops == t["attention values"].flops == 2 * 32 * 1024 * 32 * 32 * 128
    assert t["softmax"].flops == 5 * 32 * 1024 * 32 * 32
    assert t["attention scores"].bytes == t["attention values"].bytes == 32 * 32 * 32 * 128 * 2
    assert t["rotary embedding"].flops == 3 * 32 * 32 * 40 * 128 and t["rotary embedding"].bytes == 2 * 2 * 32 * 32 * 40 * 128


def test_kv_bytes_count_kv_heads_not_query_heads():
    """cases.md: with 32 query and 8 KV heads a quarter of what 32 KV heads would move; the arithmetic is the same."""
    grouped = PRESETS["llama-3-8b"]
    full = Architecture.of(dataclasses.replace(grouped, kv_heads=32))
    a, b = terms(grouped), terms(full)
    assert 4 * a["KV read"].bytes == b["KV read"].bytes and 4 * a["KV write"].bytes == b["KV write"].bytes
    assert a["attention scores"].flops == b["attention scores"].flops


@pytest.mark.parametrize("context", [100, 512, 513, 4000])
def test_windows_of_gemma(context):
    """26 layers of which every sixth sees everything and 22 see 512 tokens; one KV head and four query heads of 256."""
    t = terms("gemma-3-1b", batch=3, context=context)
    seen = 4 * context + 22 * min(context, 512)
    assert t["KV read"].bytes == 3 * seen * 2 * 256 * 2 and t["attention scores"].flops == 3 * 2 * seen * 4 * 256
    assert t["KV write"].bytes == 3 * 26 * 2 * 256 * 2


def test_prefill_whole_and_in_chunks():
    """4096 tokens of one prompt: 4096 * 4097 / 2 pairs a layer and head, however they are cut; each chunk reads what lies there."""
    whole = terms(batch=1, context=4096, kind="prefill")
    assert whole["attention scores"].flops == 2 * 4096 * 4097 / 2 * 32 * 32 * 128
    assert whole["KV read"].bytes == whole["KV write"].bytes == 4096 * 131_072
    chunks = [terms(batch=1, context=1024 * i, chunk=1024, kind="prefill") for i in (1, 2, 3, 4)]
    assert sum(c["attention scores"].flops for c in chunks) == whole["attention scores"].flops
    assert [c["KV read"].bytes / 131_072 for c in chunks] == [1024, 2048, 3072, 4096]
    assert sum(c["KV write"].bytes for c in chunks) == whole["KV write"].bytes


@pytest.mark.parametrize(
    ("kv", "read", "write"),  # B of 32 rows of 1000 tokens of Llama 3 8B: 16 vectors of 128 a token and layer, 32 layers
    [
        ("bfloat16", 32 * 1000 * 131_072, 32 * 131_072),
        ("int8", 32 * 1000 * 32 * 16 * (128 + 4), 32 * 32 * 16 * (128 + 4)),
        ("q4_0", 32 * 1000 * 32 * 16 * 4 * 18, 32 * 32 * 16 * 4 * 18),
        ("float8", 32 * 1000 * 32 * 16 * 128 + 32 * 16 * 4, 32 * 32 * 16 * 128),
        ("float8-page16", 32 * 32 * 16 * (1000 * 128 + 63 * 4), 32 * 32 * 16 * (128 + 4)),
    ],
)
def test_a_quantised_cache_moves_its_scales(kv, read, write):
    """A scale a token, a block of 32, a head (once a layer, for all rows), or a page of 16 of which 1000 tokens touch 63."""
    t = terms(context=1000, kv_dtype=kv)
    assert (t["KV read"].bytes, t["KV write"].bytes) == (read, write)
    assert t["KV read"].compute == "bfloat16"


def test_latent_cache_in_decode():
    """DeepSeek-V3: 576 numbers a token and layer for 128 heads; scores meet all of them, values the 512 of the latent."""
    t = terms("deepseek-v3", batch=2, context=1000)
    assert t["KV read"].bytes == 2 * 1000 * 61 * 576 * 2 and t["KV write"].bytes == 2 * 61 * 576 * 2
    assert t["attention scores"].flops == 2 * 2 * 1000 * 61 * 128 * 576
    assert t["attention values"].flops == 2 * 2 * 1000 * 61 * 128 * 512
    assert t["rotary embedding"].flops == 3 * 2 * 61 * 129 * 64 and "latent expansion" not in t
    weights = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256
    assert t["qkv"].flops == 2 * 2 * 61 * weights and t["qkv"].bytes == 2 * 61 * weights


def test_latent_cache_in_prefill():
    """Expanded to 128 heads of 192 and 128: a chunk of 100 tokens after 900 makes keys and values of the 900 anew."""
    t = terms("deepseek-v3", batch=1, context=1000, chunk=100, kind="prefill")
    pairs = sum(range(901, 1001))
    assert (
        t["attention scores"].flops == 2 * pairs * 61 * 128 * 192 and t["attention values"].flops == 2 * pairs * 61 * 128 * 128
    )
    assert t["latent expansion"].flops == 2 * 900 * 61 * 512 * 128 * 256
    assert t["latent expansion"].bytes == 2 * 1000 * 61 * 128 * 256 * 2


def test_shared_by_chips():
    """On 8 chips each has a KV head; on 16 as well, held twice. A latent cache is read whole by every chip."""
    reads = {n: terms(tensor_parallel=n)["KV read"].bytes for n in (1, 8, 16)}
    assert reads == {1: 32 * 1024 * 131_072, 8: 32 * 1024 * 16_384, 16: 32 * 1024 * 16_384}
    scores = {n: terms(tensor_parallel=n)["attention scores"].flops for n in (1, 8, 16)}
    assert scores[1] == 8 * scores[8] == 16 * scores[16]
    assert terms("deepseek-v3")["KV read"].bytes == terms("deepseek-v3", tensor_parallel=16)["KV read"].bytes
