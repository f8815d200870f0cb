"""How a model is held. Oracles: checkpoints' sizes by hand, and the KV bytes a token that DeepSeek and others publish."""

import pytest

from costmodel.arch.catalog import find_architecture
from costmodel.arch.deployment import Deployment, Storage
from costmodel.arch.formats import FORMATS
from models.errors import UserError

LLAMA = find_architecture("llama-3-8b")


def held(model="llama-3-8b", dtype="bfloat16", kv=None, degree=1, **more):
    return Deployment(find_architecture(model), Storage.of(dtype, kv, **more), degree)


@pytest.mark.parametrize(
    ("dtype", "kv", "activation", "compute"),
    [
        ("bfloat16", "bfloat16", "bfloat16", "bfloat16"),
        ("float32", "float32", "float32", "float32"),
        ("float16", "float16", "float16", "float16"),
        ("int8", "bfloat16", "bfloat16", "bfloat16"),
        ("float8", "bfloat16", "bfloat16", "float8"),
        ("q4_k", "bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_defaults_follow_the_weights(dtype, kv, activation, compute):
    storage = Storage.of(dtype)
    assert (storage.kv.name, storage.activation.name) == (kv, activation)
    assert storage.multiplied_in(FORMATS[dtype]) == compute


def test_compute_is_of_the_default_format_alone():
    storage = Storage.of({"default": "int8", "head": "bfloat16"}, compute="int8")
    assert storage.multiplied_in(FORMATS["int8"]) == "int8" and storage.multiplied_in(FORMATS["bfloat16"]) == "bfloat16"
    assert storage.activation.name == "bfloat16"


def test_llama_in_memory():
    """16-bit matrices and f32 norms, as the engine holds them; all in 16 bits, as the checkpoint does."""
    assert held().all_weight_bytes == 2 * (8_030_261_248 - 266_240) + 4 * 266_240
    assert held(dtype={"default": "bfloat16", "vectors": "bfloat16"}).all_weight_bytes == 16_060_522_496


def test_mixed_formats():
    """4-bit matrices in groups of 128 beside a 16-bit embedding and head, as AWQ leaves them."""
    mixed = held(dtype={"default": "int4-g128", "embed": "float16", "head": "float16", "vectors": "float16"})
    matrices = 32 * (6144 * 4096 + 4096 * 4096 + 3 * 4096 * 14336)
    assert mixed.all_weight_bytes == matrices / 2 + matrices / 128 * 2 + 2 * (2 * 128256 * 4096 + 65 * 4096)


@pytest.mark.parametrize(
    ("model", "kv", "size"),
    [
        ("llama-3-8b", None, 131_072),  # facts.md section 2
        ("llama-3-70b", None, 80 * 4096),  # section 3
        ("deepseek-v3", None, 70_272),  # Zhao et al. 2025, table 1: 70.272 KB
        ("palm-540b", None, 118 * 2 * 256 * 2),
        ("llama-3-8b", "int8", 32 * 16 * (128 + 4)),
        ("llama-3-8b", "q8_0", 32 * 16 * 4 * 34),
        ("llama-3-8b", "float8-page16", 32 * 16 * 128),
    ],
)
def test_kv_bytes_of_a_token(model, kv, size):
    assert held(model, kv=kv).kv_bytes_per_token == size


def test_shared_by_chips():
    """Llama 3 70B on 8 chips: an eighth of all but the norms. On 16 the 8 KV heads are held twice."""
    whole, part = held("llama-3-70b"), held("llama-3-70b", degree=8)
    norms = 161 * 8192 * 4
    assert part.all_weight_bytes == (whole.all_weight_bytes - norms) / 8 + norms
    assert part.kv_bytes_per_token == held("llama-3-70b", degree=16).kv_bytes_per_token == 80 * 4096 / 8
    assert (part.heads, held("llama-3-70b", degree=16).heads) == (8, 4)
    kv = 2 * 8 * 128 * 8192 * 80 * 2  # bytes of the matrices of K and V
    assert held("llama-3-70b", degree=16).all_weight_bytes == (whole.all_weight_bytes - norms - kv) / 16 + kv / 8 + norms


def test_refused():
    with pytest.raises(UserError, match="dtype mapping has no key 'default'; its keys are default, vectors, embed"):
        Storage.of({"head": "bfloat16"})
    with pytest.raises(UserError, match="dtype mapping has the key 'heads'; its keys are"):
        Storage.of({"default": "int8", "heads": "bfloat16"})
    with pytest.raises(UserError, match="attention heads 32 does not divide by tensor_parallel 5"):
        held(degree=5)
