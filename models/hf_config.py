"""A Hugging Face ``config.json`` as a `ModelConfig`, in the spelling of transformers 4 or 5.

An architecture that is not listed in `ARCHITECTURES` is refused by name; a key that decides shapes or arithmetic and is missing or
makes no sense is named.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from models.config import ModelConfig, RopeConfig
from models.errors import UserError

ARCHITECTURES: Mapping[str, str] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3",
}


def from_hf(config: Mapping[str, Any], *, origin: str = "config.json") -> ModelConfig:
    """Build a `ModelConfig` from the keys of a Hugging Face ``config.json``.

    Args:
      config: the parsed JSON object, in the spelling of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters).
      origin: named in errors, usually the file's path.

    Raises:
      UserError: unknown architecture, a needed key is missing, or a value that no model can have.
    """
    given, known = config.get("architectures"), ", ".join(sorted(ARCHITECTURES))
    if not isinstance(given, list) or not given:
        found = "missing" if given is None else repr(given)
        raise UserError(f"{origin}: key 'architectures' is {found}; it must be a list with one of {known}")
    name = str(given[0])
    if name not in ARCHITECTURES:
        raise UserError(f"{origin}: architecture {name} is not supported; supported are {known}")
    kind = ARCHITECTURES[name]

    def need(key: str) -> Any:
        if config.get(key) is None:
            raise UserError(f"{origin}: key {key!r} is missing; a {name} config needs it")
        return config[key]

    def size(key: str, default: int | None = None) -> int:
        value = need(key) if default is None else config.get(key) or default
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_SIZE:
            raise UserError(f"{origin}: {key} is {value!r}; it must be a whole number from 1 to {_MAX_SIZE}")
        return value

    def softcap(key: str) -> float | None:
        return _real(config[key], key, origin) if config.get(key) else None

    heads, hidden, layers = size("num_attention_heads"), size("hidden_size"), size("num_hidden_layers")
    gemma = kind == "gemma3"
    max_positions = size("max_position_embeddings")
    rope, rope_local = _ropes(config, gemma, max_positions, origin)
    activation = str(config.get("hidden_activation") or config.get("hidden_act") or "silu")
    if activation not in _ACTIVATIONS:
        raise UserError(f"{origin}: activation {activation!r} is not supported; supported are {', '.join(_ACTIVATIONS)}")
    scalar = config.get("query_pre_attn_scalar") if gemma else None
    bias = bool(config.get("attention_bias", False))
    return ModelConfig(
        architecture=kind,
        vocab_size=size("vocab_size"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=size("num_key_value_heads", heads),
        head_dim=size("head_dim", max(hidden // heads, 1)),
        ffn=size("intermediate_size"),
        norm_eps=_real(need("rms_norm_eps"), "rms_norm_eps", origin),
        max_positions=max_positions,
        rope=rope,
        rope_local=rope_local,
        windows=_windows(config, kind, layers, origin),
        tied_head=bool(config.get("tie_word_embeddings", gemma)),
        qkv_bias=kind == "qwen2" or bias,
        out_bias=kind != "qwen2" and bias,
        mlp_bias=kind == "llama" and bool(config.get("mlp_bias", False)),
        qk_norm=kind in ("qwen3", "gemma3"),
        sandwich_norms=gemma,
        norm_offset=1.0 if gemma else 0.0,
        activation=_ACTIVATIONS[activation],
        embedding_scale=hidden**0.5 if gemma else 1.0,
        attention_scale=_real(scalar, "query_pre_attn_scalar", origin) ** -0.5 if scalar else 0.0,
        attention_softcap=softcap("attn_logit_softcapping"),
        logit_softcap=softcap("final_logit_softcapping"),
        bos_token=next(iter(_tokens(config, "bos_token_id", origin)), None),
        eos_tokens=_tokens(config, "eos_token_id", origin),
    )


_MAX_SIZE = 1 << 24  # beyond any model: a damaged file must not make us allocate for it
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}


def _real(value: Any, key: str, origin: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise UserError(f"{origin}: {key} is {value!r}; it must be a positive number")
    return float(value)


def _tokens(config: Mapping[str, Any], key: str, origin: str) -> tuple[int, ...]:
    """No, one or several token ids."""
    value = config.get(key)
    tokens = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) for token in tokens):
        raise UserError(f"{origin}: {key} is {value!r}; it must be a token id or a list of them")
    return tuple(tokens)


def _windows(config: Mapping[str, Any], kind: str, layers: int, origin: str) -> tuple[int | None, ...]:
    """The window of each layer: `layer_types` where the config has it, else the rule of its architecture."""
    window = config.get("sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return (None,) * layers
    if not isinstance(window, int) or window < 1:
        raise UserError(f"{origin}: sliding_window is {window!r}; it must be a whole number of at least 1, or null")
    types = config.get("layer_types")
    if types:
        known = ("sliding_attention", "full_attention")
        unknown = [t for t in types if t not in known] if isinstance(types, list) else [types]
        if unknown:
            raise UserError(f"{origin}: layer type {unknown[0]!r} is not supported; supported are {', '.join(known)}")
        return tuple(window if t == "sliding_attention" else None for t in types)
    if kind == "gemma3":
        every = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or 6
        return tuple(None if (i + 1) % every == 0 else window for i in range(layers))
    if kind in ("qwen2", "qwen3"):  # they slide only when asked, and only above max_window_layers
        first = config.get("max_window_layers", layers)
        on = bool(config.get("use_sliding_window", False))
        return tuple(window if on and i >= first else None for i in range(layers))
    return (window if kind == "mistral" else None,) * layers


def _ropes(config: Mapping[str, Any], gemma: bool, positions: int, origin: str) -> tuple[RopeConfig, RopeConfig | None]:
    """(rope of full layers, rope of windowed layers or None), from either spelling of the keys."""

    def entry(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = of.get(key) or {}
        if not isinstance(value, Mapping):
            raise UserError(f"{origin}: {key} is {value!r}; it must be an object")
        return value

    given, scaling = entry(config, "rope_parameters"), entry(config, "rope_scaling")
    theta = _real(config.get("rope_theta") or 10_000.0, "rope_theta", origin)
    if "full_attention" in given:  # one entry a kind of layer (transformers 5)
        full = _rope(entry(given, "full_attention"), theta, config, positions, origin)
        local = entry(given, "sliding_attention")
        return full, _rope(local, theta, config, positions, origin) if local else None
    full = _rope({**scaling, **given}, theta, config, positions, origin)
    if not gemma:
        return full, None
    if not config.get("rope_theta") and "rope_theta" not in given:
        full = dataclasses.replace(full, theta=1_000_000.0)
    return full, RopeConfig(theta=_real(config.get("rope_local_base_freq") or 10_000.0, "rope_local_base_freq", origin))


def _rope(entry: Mapping[str, Any], theta: float, config: Mapping[str, Any], positions: int, origin: str) -> RopeConfig:
    kind = entry.get("rope_type") or entry.get("type") or "default"
    if kind not in ("default", "linear", "dynamic", "llama3", "yarn"):
        raise UserError(f"{origin}: RoPE type {kind!r} is not supported; supported are default, linear, dynamic, llama3, yarn")
    if kind != "default" and entry.get("factor") is None:
        raise UserError(f"{origin}: RoPE type {kind!r} needs the key 'factor'")
    partial = entry.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if partial not in (None, 1, 1.0):
        raise UserError(f"{origin}: partial_rotary_factor {partial} is not supported; only 1.0 is")
    original = entry.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    if kind == "llama3" and not original:
        raise UserError(f"{origin}: RoPE type 'llama3' needs the key 'original_max_position_embeddings'")

    def number(key: str, default: float) -> float:
        return _real(entry.get(key) or default, f"RoPE key {key}", origin)

    low, high = number("low_freq_factor", 1.0), number("high_freq_factor", 4.0)
    if high <= low:
        raise UserError(f"{origin}: RoPE key high_freq_factor is {high}; it must be above low_freq_factor, {low}")
    optional = {key: number(key, 1.0) for key in ("attention_factor", "mscale", "mscale_all_dim") if entry.get(key)}
    return RopeConfig(
        theta=number("rope_theta", theta),
        kind=kind,
        factor=number("factor", 1.0),
        original_positions=int(_real(original or positions, "original_max_position_embeddings", origin)),
        low_freq_factor=low,
        high_freq_factor=high,
        beta_fast=number("beta_fast", 32.0),
        beta_slow=number("beta_slow", 1.0),
        truncate=entry.get("truncate") is not False,
        **optional,
    )
