"""An `Architecture` from a Hugging Face ``config.json``: also of models with experts or a latent cache, which the engine does not run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.architecture import CONFIG, Architecture, Experts, Latent
from costmodel.config_weights import attention, edges, latent_attention, mixture, norms
from models.errors import UserError
from models.hf_config import ARCHITECTURES, from_hf

MIXTURES = (
    "MixtralForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
)
_MAX_SIZE = 1 << 24


def from_config(config: Mapping[str, Any], *, name: str | None = None, origin: str = "config.json") -> Architecture:
    """The architecture that a config describes.

    Args:
      config: the parsed JSON object.
      name: what to call it; the config's own name of its architecture if None.
      origin: named in errors, usually the file's path.

    Raises:
      UserError: unknown architecture, a needed key is missing, or a value that no model can have.
    """
    given = config.get("architectures")
    kind = str(given[0]) if isinstance(given, list) and given else "(none)"
    if kind in ARCHITECTURES:
        return Architecture.of(from_hf(config, origin=origin), name)
    if kind not in MIXTURES:
        known = ", ".join([*ARCHITECTURES, *MIXTURES])
        raise UserError(f"{origin}: architecture {kind} is not supported; supported are {known}")
    return _mixture(_Keys(config, kind, origin), name or kind)


@dataclasses.dataclass(frozen=True)
class _Keys:
    """The sizes of a config, each checked when it is read."""

    config: Mapping[str, Any]
    kind: str
    origin: str

    def __call__(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.config.get(key)
        if value is None and default is None:
            raise UserError(f"{self.origin}: key {key!r} is missing; a {self.kind} config needs it")
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_SIZE:
            raise UserError(f"{self.origin}: {key} is {value!r}; it must be a whole number from {least} to {_MAX_SIZE}")
        return value


def _mixture(size: _Keys, name: str) -> Architecture:
    hidden, layers, heads = size("hidden_size"), size("num_hidden_layers"), size("num_attention_heads")
    vocab, tied = size("vocab_size"), bool(size.config.get("tie_word_embeddings", False))
    deepseek, qwen = size.kind.startswith("Deepseek"), size.kind.startswith("Qwen")
    experts = _experts(size, layers)
    ffn = size("intermediate_size")
    latent, kv_heads = None, size("num_key_value_heads", heads)
    if deepseek:
        latent = _latent(size)
        head_dim, kv_heads = latent.nope_dim + latent.rope_dim, heads
        mixer = latent_attention(layers, hidden, heads, latent)
    else:
        head_dim = size("head_dim", max(hidden // heads, 1))
        bias = size.kind == "Qwen2MoeForCausalLM" and bool(size.config.get("qkv_bias", True))
        mixer = attention(layers, hidden, heads, kv_heads, head_dim, bias=bias, qk_norm=size.kind == "Qwen3MoeForCausalLM")
    blocks = mixture(
        layers, hidden, ffn, experts, bias=size.kind == "DeepseekV3ForCausalLM", shared_gate=qwen and experts.shared_ffn > 0
    )
    return Architecture(
        name=name,
        vocab=vocab,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        max_positions=size("max_position_embeddings"),
        windows=_windows(size, layers, qwen, deepseek),
        tied_head=tied,
        weights=(*edges(vocab, hidden, tied=tied), *norms(layers, hidden), *mixer, *blocks),
        source=CONFIG,
        experts=experts,
        latent=latent,
    )


def _experts(size: _Keys, layers: int) -> Experts:
    if size.kind == "MixtralForCausalLM":
        return Experts(size("num_local_experts"), size("num_experts_per_tok"), size("intermediate_size"))
    width, top_k = size("moe_intermediate_size"), size("num_experts_per_tok")
    if size.kind.startswith("Deepseek"):
        every, first = size("moe_layer_freq", 1), size("first_k_dense_replace", 0, least=0)
        dense = sum(i < first or i % every != 0 for i in range(layers))
        return Experts(size("n_routed_experts"), top_k, width, size("n_shared_experts", 0, least=0) * width, dense)
    every, plain = size("decoder_sparse_step", 1), size.config.get("mlp_only_layers") or []
    dense = sum(i in plain or (i + 1) % every != 0 for i in range(layers))
    return Experts(size("num_experts"), top_k, width, size("shared_expert_intermediate_size", 0, least=0), dense)


def _latent(size: _Keys) -> Latent:
    rank = size.config.get("q_lora_rank")
    return Latent(
        kv_rank=size("kv_lora_rank"),
        rope_dim=size("qk_rope_head_dim"),
        nope_dim=size("qk_nope_head_dim"),
        value_dim=size("v_head_dim"),
        q_rank=None if rank is None else size("q_lora_rank"),
    )


def _windows(size: _Keys, layers: int, qwen: bool, deepseek: bool) -> tuple[int | None, ...]:
    """Mixtral slides where it has a window; Qwen only when asked, and only above max_window_layers; DeepSeek never."""
    config = size.config
    if deepseek or config.get("sliding_window") is None or (qwen and not config.get("use_sliding_window", False)):
        return (None,) * layers
    window, first = size("sliding_window"), size("max_window_layers", layers, least=0) if qwen else 0
    return tuple(window if i >= first else None for i in range(layers))
