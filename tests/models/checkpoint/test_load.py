"""The weights that come out of a checkpoint: fused, typed, checked, and held once. Random ones, and the presets' sizes."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from gguf import GGMLQuantizationType as Kind
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from models import transformer
from models.checkpoint.base import Checkpoint
from models.checkpoint.gguf import GGUFCheckpoint
from models.checkpoint.load import check, finite, load, random_weights
from models.checkpoint.safetensors import SafetensorsCheckpoint
from models.config.hf_config import from_hf
from models.config.presets import PRESETS
from models.errors import UserError
from tests.models import checkpoints, dense

KINDS = tuple(checkpoints.CLASSES)


def flat(weights: tuple[Any, Any]) -> dict[str, np.ndarray]:
    return {".".join(map(str, path)): np.asarray(leaf.get_value()) for path, leaf in nnx.to_flat_state(weights[1])}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_every_architecture(tmp_path: Path, kind: str):
    more = {"attention_bias": True, "mlp_bias": True} if kind == "llama" else {}
    config = checkpoints.hf_config(kind, **more)
    t = checkpoints.hf_tensors(kind, config)
    weights = flat(load(SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, t)), jnp.float32))
    expected = {"embed": t["model.embed_tokens.weight"], "norm.scale": t["model.norm.weight"]}
    if kind != "gemma3":
        expected["head"] = t["lm_head.weight"]
    for i in range(2):
        p = f"model.layers.{i}."
        a, m = f"{p}self_attn.", f"{p}mlp."
        layer = {
            "attention.qkv": np.concatenate([t[f"{a}{x}_proj.weight"] for x in "qkv"]),
            "attention.out": t[f"{a}o_proj.weight"],
            "mlp.gate_up": np.concatenate([t[f"{m}gate_proj.weight"], t[f"{m}up_proj.weight"]]),
            "mlp.down": t[f"{m}down_proj.weight"],
            "attention_norm.scale": t[f"{p}input_layernorm.weight"],
            "mlp_norm.scale": t[f"{p}post_attention_layernorm.weight"],
        }
        if kind in ("llama", "qwen2"):
            layer["attention.qkv_bias"] = np.concatenate([t[f"{a}{x}_proj.bias"] for x in "qkv"])
        if kind == "llama":
            layer["attention.out_bias"] = t[f"{a}o_proj.bias"]
            layer["mlp.gate_up_bias"] = np.concatenate([t[f"{m}gate_proj.bias"], t[f"{m}up_proj.bias"]])
            layer["mlp.down_bias"] = t[f"{m}down_proj.bias"]
        if kind in ("qwen3", "gemma3"):
            layer |= {f"attention.{x}_norm.scale": t[f"{a}{x}_norm.weight"] for x in "qk"}
        if kind == "gemma3":
            layer["attention_post_norm.scale"] = t[f"{p}post_attention_layernorm.weight"]
            layer["mlp_norm.scale"] = t[f"{p}pre_feedforward_layernorm.weight"]
            layer["mlp_post_norm.scale"] = t[f"{p}post_feedforward_layernorm.weight"]
        expected |= {f"layers.{i}.{name}": value for name, value in layer.items()}
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(weights[name], value, err_msg=name)


def test_dtypes_of_weights(tmp_path: Path):
    config = checkpoints.hf_config("qwen2")
    folder = checkpoints.write_folder(tmp_path, config, checkpoints.hf_tensors("qwen2", config))
    weights = flat(load(SafetensorsCheckpoint(folder), jnp.bfloat16))
    for name, value in weights.items():
        assert value.dtype == (jnp.bfloat16 if value.ndim == 2 else jnp.float32), name


@pytest.mark.parametrize("fault", ["missing", "extra", "misshapen"])
def test_wrong_tensors_are_named(tmp_path: Path, fault: str):
    config = checkpoints.hf_config()
    tensors = checkpoints.hf_tensors("llama", config)
    name = "model.layers.1.self_attn.k_proj.weight"
    if fault == "missing":
        del tensors[name]
        pattern = rf"tensor {name} \[64, 64\] is missing"
    elif fault == "extra":
        name = "model.layers.2.mlp.up_proj.weight"
        tensors[name] = np.zeros((96, 64), np.float32)
        pattern = f"tensor {name} is not part of a llama model"
    else:
        tensors[name] = tensors[name][:32]
        pattern = rf"tensor {name} is \[32, 64\]; by the config it must be \[64, 64\]"
    with pytest.raises(UserError, match=pattern):
        load(SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors)), jnp.float32)


def test_head_is_tied_untied_or_redundant(tmp_path: Path):
    tensors = checkpoints.hf_tensors("llama", checkpoints.hf_config())

    def weights(name: str, **changes: Any) -> dict[str, np.ndarray]:
        config = checkpoints.hf_config(**changes)
        return flat(load(SafetensorsCheckpoint(checkpoints.write_folder(tmp_path / name, config, tensors)), jnp.float32))

    assert "head" in weights("says untied", tie_word_embeddings=False)
    assert "head" in weights("says nothing", tie_word_embeddings=None)
    assert "head" in weights("says tied, and the head differs", tie_word_embeddings=True)
    head = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    assert "head" not in weights("says tied, and the head is equal", tie_word_embeddings=True)
    tensors["lm_head.weight"] = head
    del tensors["model.embed_tokens.weight"]
    np.testing.assert_array_equal(weights("the head alone", tie_word_embeddings=True)["embed"], head)
    tensors = checkpoints.hf_tensors("llama", checkpoints.hf_config())
    del tensors["lm_head.weight"]
    assert "head" not in weights("tied without", tie_word_embeddings=True)
    with pytest.raises(UserError, match=r"lm_head.weight \[320, 64\] is missing"):
        weights("untied without", tie_word_embeddings=False)


NOT_OF_THE_MODEL = [
    ("model.layers.0.self_attn.q_proj.bias", "the config says nothing of this bias"),
    ("lm_head.bias", "the config says nothing of this bias"),
    ("model.layers.0.self_attn.q_proj.lora_A.weight", "it is of an adapter, which must be merged into the model"),
    ("base_model.model.lm_head.weight", "it is of an adapter, which must be merged into the model"),
    ("model.layers.0.mlp.up_proj.qzeros", "its weights are stored quantised, which is read from GGUF only"),
    ("model.layers.0.mlp.up_proj.weight_scale_inv", "its weights are stored quantised, which is read from GGUF only"),
    ("model.layers.2.input_layernorm.weight", "the config belongs to another model"),
]


@pytest.mark.parametrize(("name", "reason"), NOT_OF_THE_MODEL)
def test_tensors_that_contradict_the_config_are_never_dropped(tmp_path: Path, name: str, reason: str):
    config = checkpoints.hf_config()
    tensors = checkpoints.hf_tensors("llama", config) | {name: np.zeros(4, np.float32)}
    pattern = rf"tensor {re.escape(name)} is not part of a llama model with this config; {reason}"
    with pytest.raises(UserError, match=pattern):
        check(SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors)))


def test_a_config_of_more_layers_than_there_are(tmp_path: Path):
    config = checkpoints.hf_config()
    folder = checkpoints.write_folder(tmp_path, config | {"num_hidden_layers": 1024}, checkpoints.hf_tensors("llama", config))
    pattern = r"tensor model.layers.2.self_attn.o_proj.weight \[64, 128\] is missing; the checkpoint is incomplete"
    with pytest.raises(UserError, match=pattern):
        check(SafetensorsCheckpoint(folder))


@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, stored: Any, value: float):
    config = checkpoints.hf_config()
    tensors = checkpoints.hf_tensors("llama", config)
    for name, at in (("model.layers.1.self_attn.k_proj.weight", (63, 7)), ("model.norm.weight", (5,))):
        kept = tensors[name].copy()
        tensors[name][at] = value
        checkpoint = SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors, dtype=stored))
        for dtype in (jnp.float32, jnp.bfloat16):
            with pytest.raises(UserError, match=rf"tensor {name} holds {value:g} in row {at[0]}; the file is damaged"):
                load(checkpoint, dtype)
        tensors[name] = kept
    load(SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors, dtype=stored)), jnp.float32)


def test_weights_that_do_not_fit_the_dtype_are_refused(tmp_path: Path):
    config = checkpoints.hf_config()
    tensors = checkpoints.hf_tensors("llama", config)
    tensors["model.layers.0.mlp.up_proj.weight"][3, 4] = -70_000
    checkpoint = SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors))
    with pytest.raises(
        UserError, match=r"up_proj.weight holds -70000 in row 3; float16 does not hold it; take another --dtype"
    ):
        load(checkpoint, jnp.float16)
    load(checkpoint, jnp.bfloat16)


@given(
    hnp.arrays(np.uint16, st.integers(1, 40), elements=st.integers(0, 0xFFFF)),
    st.sampled_from([np.float16, ml_dtypes.bfloat16]),
)
@settings(max_examples=100, deadline=None)
def test_finite_is_what_numpy_calls_finite(bits: np.ndarray, dtype: Any):
    array = bits.view(dtype)
    assert finite(array) == np.isfinite(array.astype(np.float32)).all()
    assert finite(array.astype(np.float32)) == finite(array)


def test_rotary_buffers_are_ignored(tmp_path: Path):
    config = checkpoints.hf_config()
    tensors = checkpoints.hf_tensors("llama", config) | {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(16, np.float32)
    }
    load(SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors)), jnp.float32)


@pytest.mark.parametrize("form", ["safetensors", "gguf"])
def test_weights_are_never_held_twice(tmp_path: Path, form: str):
    """Apart from what `put` keeps, the host holds one weight being assembled and the tensor it is read from."""
    config = checkpoints.hf_config(num_hidden_layers=12)
    tensors = checkpoints.hf_tensors("llama", config)
    checkpoint: Checkpoint
    if form == "safetensors":
        checkpoint = SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors))
    else:
        checkpoint = GGUFCheckpoint(checkpoints.write_gguf(tmp_path / "m", "llama", config, tensors, quantised=Kind.Q8_0))
    largest, total = 320 * 64 * 4, 0

    def put(array: np.ndarray) -> Any:
        nonlocal total
        if not total:
            tracemalloc.start()  # not before: the tracing of the abstract module allocates too
        total += array.nbytes
        return jnp.zeros(())

    load(checkpoint, jnp.float32, put=put)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * largest < total / 4, (peak, largest, total)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_random_weights_match_the_description(kind: str):
    config = from_hf(checkpoints.hf_config(kind))
    weights, again, other = (flat(random_weights(config, jnp.bfloat16, seed)) for seed in (0, 0, 1))
    wanted = flat_shapes(config)
    assert {name: (value.shape, value.dtype) for name, value in weights.items()} == wanted
    for name, value in weights.items():
        np.testing.assert_array_equal(value, again[name])
        if name.endswith("scale"):
            assert (value == 1 - config.norm_offset).all()
        else:
            assert abs(float(value.astype(np.float32).std()) - 0.02) < 0.002 and not np.array_equal(value, other[name]), name
    assert not np.array_equal(weights["layers.0.attention.qkv"], weights["layers.1.attention.qkv"])


def flat_shapes(config: Any) -> dict[str, Any]:
    state = nnx.split(transformer.abstract(config, jnp.bfloat16))[1]
    leaves = {".".join(map(str, path)): leaf.get_value() for path, leaf in nnx.to_flat_state(state)}
    return {name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items()}


# the counts that the models' own cards and files state
@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("smollm2-135m", 134_515_008),
        ("llama-3-8b", 8_030_261_248),
        pytest.param("llama-3-70b", 70_553_706_496, marks=pytest.mark.slow),
        ("llama-3.2-1b", 1_235_814_400),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-0.6b", 596_049_920),
        ("gemma-3-1b", 999_885_952),
    ],
)
def test_presets_have_the_published_sizes(preset: str, parameters: int):
    assert sum(int(np.prod(shape)) for shape, _ in flat_shapes(PRESETS[preset]).values()) == parameters


@pytest.mark.peers
@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_transformers(tmp_path: Path, kind: str):
    torch = pytest.importorskip("torch", reason="needs the extra 'transformers'")
    transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    changes: dict[str, Any] = {"sliding_window": 8} if kind == "mistral" else {}
    if kind == "llama":
        changes = {"attention_bias": True, "mlp_bias": True}
    keys = {k: v for k, v in checkpoints.hf_config(kind, **changes).items() if k != "architectures"}
    settings = transformers.AutoConfig.for_model("gemma3_text" if kind == "gemma3" else kind, **keys)
    torch.manual_seed(0)
    reference = getattr(transformers, checkpoints.CLASSES[kind])(settings).eval()
    with torch.no_grad():
        for parameter in reference.parameters():  # biases and norms start at 0 and 1, which would hide a mistake
            parameter.add_(torch.randn_like(parameter) * 0.1)
    reference.save_pretrained(tmp_path)
    checkpoint = SafetensorsCheckpoint(tmp_path)
    ids = [1, *np.random.default_rng(0).integers(3, 320, 40).tolist()]
    ours = dense.logits(checkpoint.config, load(checkpoint, jnp.float32), ids)
    with torch.no_grad():
        theirs = reference(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())
