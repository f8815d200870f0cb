"""GGUF metadata as the Hugging Face config that `models.hf_config.from_hf` reads: what a config means is said in one place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from models import rotary
from models.config import RopeConfig
from models.errors import UserError

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}

_KEYS = {  # GGUF key below the architecture's name -> Hugging Face key
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
}

_OPTIONAL = {key for key in _KEYS if key.startswith(("rope.", "attn_", "final_"))} | {
    "attention.head_count_kv",
    "attention.key_length",
    "attention.sliding_window",
}

_GEMMA3_27B_LAYERS = 62  # the one Gemma 3 whose attention scale is not head_dim**-0.5; GGUF has no key for it


def hf_config(
    metadata: Mapping[str, Any], tensors: Collection[str], rope_factors: np.ndarray | None, origin: str
) -> dict[str, Any]:
    """Translate the metadata of a GGUF file.

    Args:
      metadata: all keys and values of the file.
      tensors: the GGUF names of its tensors; they tell about biases and the tied head, for which GGUF has no keys.
      rope_factors: the tensor ``rope_freqs.weight``, f32 [head_dim / 2], or None where the file has none.
      origin: named in errors.

    Raises:
      UserError: an architecture or a feature that is not supported, or a key that is missing.
    """
    name = metadata.get("general.architecture", "(none)")
    if name not in _ARCHITECTURES:
        raise UserError(f"{origin}: GGUF architecture {name!r} is not supported; supported are {', '.join(_ARCHITECTURES)}")
    if metadata.get("split.count", 1) > 1:
        raise UserError(f"{origin}: one of {metadata['split.count']} parts; join them with `llama-gguf-split --merge` first")

    def get(key: str) -> Any:
        return metadata.get(f"{name}.{key}")

    config: dict[str, Any] = {"architectures": [_ARCHITECTURES[name]], "tie_word_embeddings": "output.weight" not in tensors}
    for key, target in _KEYS.items():
        value = get(key)
        if isinstance(value, list):
            raise UserError(f"{origin}: {name}.{key} differs from layer to layer, which is not supported")
        if value is not None:
            config[target] = value
        elif key not in _OPTIONAL:
            raise UserError(f"{origin}: metadata key {name}.{key} is missing; convert the model again")
    _refuse_others(name, get, config, origin)
    config["vocab_size"] = get("vocab_size") or len(metadata.get("tokenizer.ggml.tokens", ())) or None
    config["bos_token_id"] = metadata.get("tokenizer.ggml.bos_token_id")
    config["eos_token_id"] = _eos_tokens(metadata)
    config["rope_scaling"] = _rope_scaling(name, get, config, rope_factors, origin)
    if name == "llama":
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
        config["mlp_bias"] = "blk.0.ffn_gate.bias" in tensors
        if "sliding_window" in config:  # Mistral files call themselves llama
            config["architectures"] = ["MistralForCausalLM"]
    if name == "gemma3":
        config["hidden_activation"] = "gelu_pytorch_tanh"
        if config["num_hidden_layers"] == _GEMMA3_27B_LAYERS:
            config["query_pre_attn_scalar"] = config["hidden_size"] // max(config["num_attention_heads"], 1)
        config.setdefault("query_pre_attn_scalar", _head_dim(config))
    config.setdefault("head_dim", _head_dim(config))  # the defaults of GGUF, which are not those of transformers
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    return config


def _eos_tokens(metadata: Mapping[str, Any]) -> list[int]:
    """Every id that ends an answer: end of text, of turn and of message, each once."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    given = [metadata.get(f"tokenizer.ggml.{key}") for key in keys]
    return list(dict.fromkeys(token for token in given if token is not None))


def _refuse_others(name: str, get: Callable[[str], Any], config: Mapping[str, Any], origin: str) -> None:
    """Features that change the arithmetic and that we do not run: silence would be a wrong answer."""
    if get("expert_count"):
        raise UserError(f"{origin}: a mixture of {get('expert_count')} experts, which is not supported; use a dense model")
    head_dim = _head_dim(config)
    for key in ("rope.dimension_count", "attention.value_length"):
        if get(key) not in (None, head_dim):
            raise UserError(f"{origin}: {name}.{key} is {get(key)} and head_dim is {head_dim}; only equal values are supported")


def _head_dim(config: Mapping[str, Any]) -> int:
    return config.get("head_dim") or config["hidden_size"] // max(config["num_attention_heads"], 1)


def _rope_scaling(
    name: str, get: Callable[[str], Any], config: Mapping[str, Any], factors: np.ndarray | None, origin: str
) -> dict[str, Any] | None:
    kind, factor = get("rope.scaling.type"), get("rope.scaling.factor")
    if kind is None and (get("rope.scale_linear") or factor):  # before the type had a key of its own it was linear
        kind, factor = "linear", get("rope.scale_linear") or factor
    if factors is not None:
        if kind not in (None, "none"):
            raise UserError(f"{origin}: both rope_freqs.weight and RoPE scaling {kind!r}, which is not supported")
        return _llama3(factors, config, origin)
    if kind in (None, "none") or (kind == "linear" and factor in (None, 1.0)):
        return None
    if kind == "yarn":
        # llama.cpp multiplies these into the attention temperature; the models that we run leave them at their neutral values
        for key, neutral in (("attn_factor", 1.0), ("yarn_attn_factor", 1.0), ("yarn_log_multiplier", 0.0)):
            value = get(f"rope.scaling.{key}")
            if value not in (None, neutral):
                raise UserError(f"{origin}: {name}.rope.scaling.{key} is {value}; only {neutral} is supported")
    return {
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": get("rope.scaling.original_context_length"),
        "beta_fast": get("rope.scaling.yarn_beta_fast"),
        "beta_slow": get("rope.scaling.yarn_beta_slow"),
    }


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
