"""An `Architecture` from a Hugging Face ``config.json``: also of models with experts or a latent cache, which the engine does not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.arch.architecture import CONFIG, Architecture, Experts, Latent
from costmodel.arch.config_weights import attention, edges, latent_attention, mixture, norms
from models.config.architectures import ARCHITECTURES
from models.config.hf_config import from_hf
from models.config.hf_rope import read_ropes
from models.errors import UserError, short
from models.files.json_keys import JsonKeys

MIXTURES = (
    "MixtralForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
)


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
    first = given[0] if isinstance(given, list) and given else "(none)"
    kind = first if isinstance(first, str) and len(first) < 80 and first.isprintable() else short(first)
    if kind in ARCHITECTURES:
        return Architecture.of(from_hf(config, origin=origin), name)
    if kind not in MIXTURES:
        known = ", ".join([*ARCHITECTURES, *MIXTURES])
        raise UserError(f"{origin}: architecture {kind} is not supported; supported are {known}")
    keys = JsonKeys(config, origin, f"a {kind} config")
    return _mixture(keys, kind, name or kind)


def _mixture(keys: JsonKeys, kind: str, name: str) -> Architecture:
    hidden, layers, heads = (
        keys.size("hidden_size"),
        keys.size("num_hidden_layers", most=1024),
        keys.size("num_attention_heads"),
    )
    vocab, tied = keys.size("vocab_size"), keys.flag("tie_word_embeddings")
    deepseek, qwen = kind.startswith("Deepseek"), kind.startswith("Qwen")
    experts = _experts(keys, kind, layers)
    ffn = keys.size("intermediate_size")
    latent, kv_heads = None, keys.size("num_key_value_heads", heads)
    if deepseek:
        latent = _latent(keys)
        head_dim, kv_heads = latent.nope_dim + latent.rope_dim, heads
        mixer = latent_attention(layers, hidden, heads, latent)
    else:
        head_dim = keys.size("head_dim", max(hidden // heads, 1))
        bias = kind == "Qwen2MoeForCausalLM" and keys.flag("qkv_bias", True)
        mixer = attention(layers, hidden, heads, kv_heads, head_dim, bias=bias, qk_norm=kind == "Qwen3MoeForCausalLM")
    blocks = mixture(
        layers, hidden, ffn, experts, bias=kind == "DeepseekV3ForCausalLM", shared_gate=qwen and experts.shared_ffn > 0
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
        max_positions=read_ropes(keys).context,
        windows=_windows(keys, layers, qwen, deepseek),
        tied_head=tied,
        weights=(*edges(vocab, hidden, tied=tied), *norms(layers, hidden), *mixer, *blocks),
        source=CONFIG,
        experts=experts,
        latent=latent,
    )


def _experts(keys: JsonKeys, kind: str, layers: int) -> Experts:
    if kind == "MixtralForCausalLM":
        return Experts(keys.size("num_local_experts"), keys.size("num_experts_per_tok"), keys.size("intermediate_size"))
    width, top_k = keys.size("moe_intermediate_size"), keys.size("num_experts_per_tok")
    if kind.startswith("Deepseek"):
        every, first = keys.size("moe_layer_freq", 1), keys.size("first_k_dense_replace", 0, least=0)
        dense = sum(i < first or i % every != 0 for i in range(layers))
        return Experts(keys.size("n_routed_experts"), top_k, width, keys.size("n_shared_experts", 0, least=0) * width, dense)
    every, plain = keys.size("decoder_sparse_step", 1), keys.values.get("mlp_only_layers") or []
    if not isinstance(plain, list):
        raise keys.refused("mlp_only_layers", "it must be a list of layers")
    dense = sum(i in plain or (i + 1) % every != 0 for i in range(layers))
    return Experts(keys.size("num_experts"), top_k, width, keys.size("shared_expert_intermediate_size", 0, least=0), dense)


def _latent(keys: JsonKeys) -> Latent:
    return Latent(
        kv_rank=keys.size("kv_lora_rank"),
        rope_dim=keys.size("qk_rope_head_dim"),
        nope_dim=keys.size("qk_nope_head_dim"),
        value_dim=keys.size("v_head_dim"),
        q_rank=keys.size("q_lora_rank") if keys.given("q_lora_rank") else None,
    )


def _windows(keys: JsonKeys, layers: int, qwen: bool, deepseek: bool) -> tuple[int | None, ...]:
    """Mixtral slides where it has a window; Qwen only when asked, and only above max_window_layers; DeepSeek never."""
    if deepseek or not keys.given("sliding_window") or (qwen and not keys.flag("use_sliding_window")):
        return (None,) * layers
    window, first = keys.size("sliding_window"), keys.size("max_window_layers", layers, least=0) if qwen else 0
    return tuple(window if i >= first else None for i in range(layers))
