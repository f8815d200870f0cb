"""GGUF metadata as the Hugging Face config that `models.config.hf_config.from_hf` reads: what a config means is said in one place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from models import rotary
from models.checkpoint.gguf_keys import KEYS
from models.config.architectures import gguf_architectures
from models.config.model_config import RopeConfig
from models.errors import UserError, short

_GEMMA3_27B_LAYERS = 62  # the one Gemma 3 whose attention scale is not head_dim**-0.5; GGUF has no key for it

_HEAD_DIMS = (
    "attention.value_length",
    "attention.head_dim",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.dimension_count",
    "rope.dimension_count_swa",
)


def hf_config(
    metadata: Mapping[str, Any],
    tensors: Collection[str],
    rope_factors: np.ndarray | None,
    vocab_size: int | None,
    eos_tokens: list[int],
    origin: str,
) -> dict[str, Any]:
    """Translate the metadata of a GGUF file.

    Args:
      metadata: the keys that are read, as `models.checkpoint.gguf_keys.understood` returns them.
      tensors: the GGUF names of its tensors; they tell about biases and the tied head, for which GGUF has no keys.
      rope_factors: the tensor ``rope_freqs.weight``, f32 [head_dim / 2], or None where the file has none.
      vocab_size: rows of the embedding, or None where it is missing.
      eos_tokens: ids that end an answer.
      origin: named in errors.

    Raises:
      UserError: a key is missing, or a feature that is not supported.
    """
    name = metadata["general.architecture"]

    def get(key: str) -> Any:
        return metadata.get(f"{name}.{key}")

    config: dict[str, Any] = {
        "architectures": [gguf_architectures()[name].hf_class],
        "tie_word_embeddings": "output.weight" not in tensors,
    }
    for key in KEYS:
        if key.hf is None or key.hf in config:  # llama.cpp's name of a key stands before Ollama's
            continue
        value = metadata.get(key.name.replace("{arch}", name))
        if value is not None:
            config[key.hf] = value
        elif key.needed:
            missing = key.name.replace("{arch}", name)
            raise UserError(f"{origin}: metadata key {missing} is missing; convert the model again")
    for key_name in _HEAD_DIMS:
        value, head_dim = get(key_name), _head_dim(config)
        if value not in (None, head_dim):
            raise UserError(
                f"{origin}: {name}.{key_name} is {value} and head_dim is {head_dim}; only equal values are supported"
            )
    config["vocab_size"] = vocab_size or len(metadata.get("tokenizer.ggml.tokens", ())) or get("vocab_size")
    config["eos_token_id"] = eos_tokens
    config["rope_scaling"] = _rope_scaling(name, get, config, rope_factors, origin)
    for none_at_0 in ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping"):
        if not config.get(none_at_0):
            config.pop(none_at_0, None)
    if name == "llama":
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
        config["mlp_bias"] = "blk.0.ffn_gate.bias" in tensors
        if "sliding_window" in config:  # Mistral files call themselves llama
            config["architectures"] = ["MistralForCausalLM"]
    elif name == "gemma3":
        config["hidden_activation"] = "gelu_pytorch_tanh"
        config |= _sliding_layers(get("attention.sliding_window_pattern"), config, origin)
        if config["num_hidden_layers"] == _GEMMA3_27B_LAYERS:
            config["query_pre_attn_scalar"] = config["hidden_size"] // config["num_attention_heads"]
        config.setdefault("query_pre_attn_scalar", _head_dim(config))
    config.setdefault("head_dim", _head_dim(config))  # the defaults of GGUF, which are not those of transformers
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    return config


def _sliding_layers(pattern: Any, config: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Which layers of a Gemma 3 see a window only: llama.cpp writes every how many layers one sees all, Ollama whether each slides."""
    layers = config["num_hidden_layers"]
    if isinstance(pattern, list) and len(pattern) != layers:
        key = "gemma3.attention.sliding_window_pattern"
        raise UserError(f"{origin}: {key} lists {len(pattern)} layers and the model has {layers}; convert the model again")
    if "sliding_window" not in config:  # where a Hugging Face config without one would have the default
        pattern = [False] * min(layers, 1 << 16)
    if isinstance(pattern, list):
        return {"layer_types": ["sliding_attention" if slides else "full_attention" for slides in pattern]}
    return {"sliding_window_pattern": pattern} if pattern else {}


def _head_dim(config: Mapping[str, Any]) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def _rope_scaling(
    name: str, get: Callable[[str], Any], config: Mapping[str, Any], factors: np.ndarray | None, origin: str
) -> dict[str, Any] | None:
    factor = get("rope.scaling.factor") or get("rope.scale_linear")
    kind = get("rope.scaling.type") or "linear"  # before the type had a key of its own it was linear
    if kind not in ("none", "linear", "yarn"):
        raise UserError(f"{origin}: {name}.rope.scaling.type is {short(kind)}; supported are none, linear, yarn")
    scaled = kind == "yarn" or (kind == "linear" and factor not in (None, 1.0))
    if factors is not None:
        if scaled:
            raise UserError(f"{origin}: both rope_freqs.weight and RoPE scaling {kind!r}, which is not supported")
        return _llama3(factors, config, origin)
    if not scaled:
        return None
    if factor is None:
        raise UserError(f"{origin}: metadata key {name}.rope.scaling.factor is missing; RoPE scaling {kind!r} needs it")
    original = get("rope.scaling.original_context_length")
    scaling = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original}
    if kind == "yarn":
        for beta in ("beta_fast", "beta_slow"):
            scaling[beta] = get(f"rope.scaling.yarn_{beta}") or get(f"rope.scaling.{beta}")
    return scaling


def _llama3(factors: np.ndarray, config: Mapping[str, Any], origin: str) -> dict[str, Any] | None:
    """The parameters of Llama 3's scaling from the divisors of each frequency that the converter wrote in their place.

    Of its four parameters only the factor varies between the published models (8 in 3.1, 32 in 3.2); it is the largest divisor.
    The others are 1, 4 and 8192, and the divisors that follow from them must be those in the file.
    """
    head_dim = _head_dim(config)
    if factors.shape != (head_dim // 2,):
        raise UserError(
            f"{origin}: rope_freqs.weight is {list(factors.shape)}; for head_dim {head_dim} it must be [{head_dim // 2}]"
        )
    factor = float(factors.max())
    if factor == 1.0 and float(factors.min()) == 1.0:
        return None
    theta = float(config.get("rope_theta", 10_000.0))
    rope = RopeConfig(theta, "llama3", factor, original_positions=8192, low_freq_factor=1.0, high_freq_factor=4.0)
    expected = rotary.inverse_frequencies(RopeConfig(theta=theta), head_dim, 1) / rotary.inverse_frequencies(rope, head_dim, 1)
    if not np.allclose(factors, expected, rtol=1e-3):
        published = f"low {rope.low_freq_factor:g}, high {rope.high_freq_factor:g}, original context {rope.original_positions}"
        raise UserError(f"{origin}: rope_freqs.weight is not Llama 3's scaling ({published}); use the safetensors checkpoint")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_positions,
    }
