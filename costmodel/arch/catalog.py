"""Architectures by name: the engine's presets, and published models that only the cost model knows."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any

from costmodel.arch.architecture import CONFIG, Architecture
from costmodel.arch.config_weights import attention, edges, mlp, norms
from costmodel.arch.hf_config import from_config
from models.config.model_config import ModelConfig
from models.config.presets import PRESETS
from models.errors import UserError


def palm(name: str, *, layers: int, hidden: int, heads: int) -> Architecture:
    """A model of the PaLM family (Chowdhery et al. 2022, table 1): one KV head, attention and MLP side by side, SwiGLU, tied head.

    Every member has heads of 256, an MLP of 4 times the hidden size and 256,000 tokens; none has biases.
    """
    head_dim, ffn, vocab = 256, 4 * hidden, 256_000
    return Architecture(
        name=name,
        vocab=vocab,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=1,
        head_dim=head_dim,
        ffn=ffn,
        max_positions=2048,
        windows=(None,) * layers,
        tied_head=True,
        weights=(
            *edges(vocab, hidden, tied=True),
            *norms(layers, hidden, each=1),
            *attention(layers, hidden, heads, 1, head_dim),
            *mlp(layers, hidden, ffn),
        ),
        source=CONFIG,
        parallel=True,
    )


# fmt: off
# The keys of each model's published config.json that decide its cost.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "mixtral-8x7b": {
        "architectures": ["MixtralForCausalLM"], "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8,
        "num_experts_per_tok": 2, "max_position_embeddings": 32768,
    },
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "max_position_embeddings": 40960,
    },
    "deepseek-v2-lite": {
        "architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102400, "hidden_size": 2048, "num_hidden_layers": 27,
        "num_attention_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840,
    },
    "deepseek-v3": {  # without the module that predicts a second token
        "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 129280, "hidden_size": 7168, "num_hidden_layers": 61,
        "num_attention_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840,
    },
}
# fmt: on

ARCHITECTURES: Mapping[str, Callable[[], Architecture]] = {
    **{name: functools.partial(Architecture.of, config, name) for name, config in PRESETS.items()},
    **{name: functools.partial(from_config, config, name=name, origin=name) for name, config in CONFIGS.items()},
    "palm-8b": functools.partial(palm, "palm-8b", layers=32, hidden=4096, heads=16),
    "palm-62b": functools.partial(palm, "palm-62b", layers=64, hidden=8192, heads=32),
    "palm-540b": functools.partial(palm, "palm-540b", layers=118, hidden=18432, heads=48),
}


@functools.cache
def find_architecture(name: str) -> Architecture:
    """The architecture called `name`, in any case and with spaces or underscores for hyphens.

    Raises:
      UserError: no such model; the message suggests the nearest names.
    """
    key = name.strip().lower().replace(" ", "-").replace("_", "-")
    if key in ARCHITECTURES:
        return ARCHITECTURES[key]()
    near = difflib.get_close_matches(key, ARCHITECTURES, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f"unknown model {name!r}; {hint}known models are {', '.join(ARCHITECTURES)}")


def as_architecture(model: Architecture | ModelConfig | str | Mapping[str, Any]) -> Architecture:
    """What a caller may name a model by: an architecture, a config of the engine, a name in the catalogue, a parsed config.json."""
    if isinstance(model, Architecture):
        return model
    if isinstance(model, ModelConfig):
        return Architecture.of(model)
    return find_architecture(model) if isinstance(model, str) else from_config(model)
