"""GGUF checkpoints: the conventions of the converter undone, metadata understood, and other models refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.checkpoint.gguf import GGUFCheckpoint, halves
from models.checkpoint.load import load
from models.checkpoint.safetensors import SafetensorsCheckpoint
from models.errors import UserError
from tests.models import checkpoints, dense


def tiny(path: Path, kind: str = "llama", *, changes: dict[str, Any] | None = None, **how: Any) -> Path:
    config = checkpoints.hf_config(kind, **(changes or {}))
    return checkpoints.write_gguf(path / "m.gguf", kind, config, checkpoints.hf_tensors(kind, config), **how)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma3"])
def test_weights_equal_those_of_the_folder(tmp_path: Path, kind: str):
    config = checkpoints.hf_config(kind, **({"attention_bias": True} if kind == "llama" else {}))
    if kind == "gemma3":
        config["sliding_window_pattern"] = 6  # the files do not say: it is 6
    tensors = checkpoints.hf_tensors(kind, config)
    folder = SafetensorsCheckpoint(checkpoints.write_folder(tmp_path / "folder", config, tensors))
    file = GGUFCheckpoint(checkpoints.write_gguf(tmp_path / "m.gguf", kind, config, tensors))
    assert file.names() == folder.names()
    assert file.config.windows == folder.config.windows and file.config.rope == folder.config.rope
    for left, right in zip(*(nnx.to_flat_state(load(x, jnp.float32)[1]) for x in (file, folder)), strict=True):
        assert left[0] == right[0]
        np.testing.assert_allclose(left[1].get_value(), right[1].get_value(), atol=1e-6, err_msg=str(left[0]))


@pytest.mark.parametrize("shape", [(32, 5), (32,)])
def test_rotary_pairs_are_put_back_into_halves(shape: tuple[int, ...]):
    rows = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(halves(checkpoints.interleave(rows, 4), 4), rows)
    assert not np.array_equal(halves(rows, 4), rows)


def llama3_divisors(factor: float, low: float = 1.0, high: float = 4.0, original: int = 8192) -> np.ndarray:
    """`rope_freqs.weight` of a head of 32 with theta 500,000, pair by pair as the converter writes it."""
    out = []
    for i in range(16):
        wavelength = 2 * math.pi * 500_000 ** (2 * i / 32)
        smooth = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
        out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_recovered_from_its_divisors(tmp_path: Path, factor: float):
    path = tiny(tmp_path, changes={"rope_theta": 500_000.0}, extra={"rope_freqs.weight": llama3_divisors(factor)})
    checkpoint = GGUFCheckpoint(path)
    rope = checkpoint.config.rope
    assert (rope.kind, rope.factor, rope.low_freq_factor, rope.high_freq_factor) == ("llama3", factor, 1.0, 4.0)
    assert rope.original_positions == 8192
    load(checkpoint, jnp.float32)  # the divisors are no tensor of the model


def test_other_divisors_are_refused_and_none_is_none(tmp_path: Path):
    (tmp_path / "a").mkdir()
    odd = llama3_divisors(8.0, low=2.0)
    with pytest.raises(UserError, match=r"rope_freqs.weight is not Llama 3's scaling \(low 1, high 4, original context 8192\)"):
        GGUFCheckpoint(tiny(tmp_path, changes={"rope_theta": 500_000.0}, extra={"rope_freqs.weight": odd}))
    with pytest.raises(UserError, match=r"rope_freqs.weight is \[8\]; for head_dim 32 it must be \[16\]"):
        GGUFCheckpoint(tiny(tmp_path, extra={"rope_freqs.weight": np.ones(8, np.float32)}))
    ones = np.ones(16, np.float32)
    assert GGUFCheckpoint(tiny(tmp_path / "a", extra={"rope_freqs.weight": ones})).config.rope.kind == "default"


def test_gemma_and_mistral(tmp_path: Path):
    config = GGUFCheckpoint(tiny(tmp_path, "gemma3", changes={"num_hidden_layers": 7})).config
    assert config.windows == (8, 8, 8, 8, 8, None, 8) and config.attention_scale == pytest.approx(32**-0.5)
    assert config.rope_local is not None and (config.rope.theta, config.rope_local.theta) == (1e6, 10_000.0)
    config = GGUFCheckpoint(tiny(tmp_path, keys={"llama.attention.sliding_window": 16})).config
    assert (config.architecture, config.windows) == ("mistral", (16, 16))


def test_end_tokens_are_the_union_of_keys_and_texts(tmp_path: Path):
    keys = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 2, "tokenizer.ggml.eos_token_ids": [2, 7]}
    tokens = checkpoints.vocabulary(320)["tokenizer.ggml.tokens"]
    tokens[310] = "<end_of_turn>"
    checkpoint = GGUFCheckpoint(tiny(tmp_path, keys=keys | {"tokenizer.ggml.tokens": tokens}))
    assert checkpoint.config.eos_tokens == checkpoint.tokenizer().eos_tokens == (2, 7, 5, 310)


@pytest.mark.parametrize(("rows", "tokens"), [(330, 320), (310, 320)])
def test_the_rows_of_the_embedding_are_the_vocabulary(tmp_path: Path, rows: int, tokens: int):
    """A token without a row is refused where a prompt has it; llama.vocab_size says nothing that the rows do not."""
    path = tiny(tmp_path, changes={"vocab_size": rows}, keys=checkpoints.vocabulary(tokens) | {"llama.vocab_size": 999})
    checkpoint = GGUFCheckpoint(path)
    assert checkpoint.config.vocab_size == rows and checkpoint.tokenizer().backend.get_vocab_size() == tokens
    load(checkpoint, jnp.float32)


def split(folder: Path, **keys: Any) -> list[Path]:
    """A model in several files, as gguf-split writes it: metadata in the first, `split.no` in each, tensors dealt out in turn."""
    kind, parts, paths = "llama", 3, []
    config = checkpoints.hf_config(kind)
    tensors = list(checkpoints.hf_tensors(kind, config).items())
    for number in range(parts):
        path = folder / f"m-{number + 1:05}-of-{parts:05}.gguf"
        own = {"split.count": parts, "split.no": number, "split.tensors.count": len(tensors)} | keys
        if number:
            own = dict.fromkeys([*checkpoints.gguf_keys(kind, config), *checkpoints.vocabulary(320)]) | own
        paths.append(checkpoints.write_gguf(path, kind, config, dict(tensors[number::parts]), keys=own))
    return paths


def test_a_model_in_several_files_is_read_from_its_first(tmp_path: Path):
    first, *_ = split(tmp_path)
    (tmp_path / "one").mkdir()
    parts, whole = GGUFCheckpoint(first), GGUFCheckpoint(tiny(tmp_path / "one"))
    assert parts.names() == whole.names() and parts.config == whole.config
    for name in whole.names():
        assert parts.shape(name) == whole.shape(name)
        np.testing.assert_array_equal(parts.read(name), whole.read(name))
    assert parts.provenance.weights == tuple(f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3))
    assert parts.tokenizer().encode("hello") == whole.tokenizer().encode("hello")


def test_what_is_wrong_with_parts(tmp_path: Path):
    first, second, third = split(tmp_path)
    with pytest.raises(UserError, match=r"part 2 of 3; give the first, m-00001-of-00003.gguf"):
        GGUFCheckpoint(second)
    content = third.read_bytes()
    third.unlink()
    with pytest.raises(UserError, match=r"m-00003-of-00003.gguf: no such file, and the model is in 3; download it too"):
        GGUFCheckpoint(first)
    third.write_bytes(second.read_bytes())
    with pytest.raises(UserError, match=r"m-00003-of-00003.gguf: not part 3 of 3, as its name says"):
        GGUFCheckpoint(first)
    third.write_bytes(content)
    alone = tmp_path / "other.gguf"
    alone.write_bytes(first.read_bytes())
    with pytest.raises(UserError, match=r"other.gguf: one part of a model; the names of its 3 files must end in"):
        GGUFCheckpoint(alone)
    with pytest.raises(UserError, match="its 3 files hold 21 tensors and must hold 99"):
        GGUFCheckpoint(split(tmp_path, **{"split.tensors.count": 99})[0])
    split(tmp_path)
    config = checkpoints.hf_config()
    twice = {name: tensor for name, tensor in checkpoints.hf_tensors("llama", config).items() if name == "model.norm.weight"}
    checkpoints.write_gguf(third, "llama", config, twice, keys={"split.count": 3, "split.no": 2})
    with pytest.raises(UserError, match=r"m-00003-of-00003.gguf: tensor output_norm.weight is in m-0000[12]-of-00003.gguf too"):
        GGUFCheckpoint(first)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("phi3", {}, "GGUF architecture 'phi3' is not supported; supported are llama, qwen2, qwen3, gemma3"),
    ("llama", {"llama.expert_count": 8}, "llama.expert_count is 8: a mixture of experts is not supported; use a dense model"),
    ("llama", {"llama.block_count": None}, r"metadata key llama.block_count is missing"),
    (
        "llama",
        {"llama.attention.head_count_kv": [2, 1]},
        r"llama.attention.head_count_kv is \[2, 1\]: it differs from layer to layer",
    ),
    ("llama", {"llama.rope.dimension_count": 16}, r"llama.rope.dimension_count is 16 and head_dim is 32"),
    (
        "llama",
        {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0},
        "llama.rope.scaling.type is 'longrope'; supported are none, linear, yarn",
    ),
    ("llama", {"split.count": 3}, "one part of a model; the names of its 3 files must end in -00001-of-00003.gguf and so on"),
    ("llama", {"split.count": [0.5, 1e6] * 9}, r"split.count is \[0.5, 1000000.0, 0.5, ...\]; it must be a whole number"),
    ("llama", {"general.alignment": [0.5, 1e6] * 9}, r"general.alignment is \[0.5, 1000000.0, 0.5, ...\]; it must be a power"),
    ("llama", {"split.count": "3"}, "split.count is '?3'?; it must be a whole number"),
    ("llama", {"general.type": "adapter"}, "general.type is 'adapter': only whole models run"),
    ("llama", {"llama.block_count": 3}, r"tensor model.layers.2.self_attn.o_proj.weight \[64, 128\] is missing"),
    ("llama", {"llama.block_count": 1}, r"tensor model.layers.1.input_layernorm.weight \(and 8 more\) is not part of a llama"),
]


@pytest.mark.parametrize(("kind", "keys", "pattern"), REFUSED)
def test_other_models_are_refused_in_one_line(tmp_path: Path, kind: str, keys: dict[str, Any], pattern: str):
    with pytest.raises(UserError, match=pattern) as raised:
        load(GGUFCheckpoint(tiny(tmp_path, kind, keys=keys)), jnp.float32)
    assert "\n" not in str(raised.value)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("kind", "keys", "extra"),
    [
        ("llama", {}, {}),
        ("llama", {}, {"rope_freqs.weight": llama3_divisors(32.0)}),
        ("llama", {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, {}),
        ("qwen2", {}, {}),
        ("qwen3", {}, {}),
        ("gemma3", {}, {}),
    ],
)
def test_logits_equal_llama_cpp(tmp_path: Path, kind: str, keys: dict[str, Any], extra: dict[str, np.ndarray]):
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs the extra 'llama'")
    changes = {"rope_theta": 500_000.0} if extra else {"head_dim": 16} if kind == "qwen2" else {}
    path = tiny(tmp_path, kind, changes=changes, keys=keys, extra=extra)
    checkpoint = GGUFCheckpoint(path)
    ids = [1, *np.random.default_rng(0).integers(3, 320, 40).tolist()]
    ours = dense.logits(checkpoint.config, load(checkpoint, jnp.float32), ids)
    theirs = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, verbose=False)
    theirs.eval(ids)
    scores = np.array(theirs.scores[: len(ids)])
    np.testing.assert_allclose(ours, scores, atol=2e-3 * np.abs(scores).max())  # its GELU is a table in half precision
