"""Published model shapes by name, for models with random weights and for the cost model. No weights, no vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.config.hf_config import from_hf
from models.config.model_config import ModelConfig


# fmt: off
def _preset(
    name: str, *, vocab: int, hidden: int, layers: int, heads: int, kv: int, ffn: int, positions: int, theta: float, **more: Any
) -> ModelConfig:
    shape = {
        "architectures": [f"{name}ForCausalLM"],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "max_position_embeddings": positions,
        "rope_theta": theta,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    return from_hf({**shape, **more}, origin=f"preset {name}")


_LLAMA32_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

PRESETS: Mapping[str, ModelConfig] = {
    "tiny": _preset(
        "Llama", vocab=512, hidden=64, layers=2, heads=4, kv=2, ffn=128, positions=1024, theta=10_000.0),
    "smollm2-135m": _preset(
        "Llama", vocab=49152, hidden=576, layers=30, heads=9, kv=3, ffn=1536, positions=8192, theta=100_000.0,
        tie_word_embeddings=True),
    "llama-3-8b": _preset(
        "Llama", vocab=128256, hidden=4096, layers=32, heads=32, kv=8, ffn=14336, positions=8192, theta=500_000.0),
    "llama-3-70b": _preset(
        "Llama", vocab=128256, hidden=8192, layers=80, heads=64, kv=8, ffn=28672, positions=8192, theta=500_000.0),
    "llama-3.2-1b": _preset(
        "Llama", vocab=128256, hidden=2048, layers=16, heads=32, kv=8, ffn=8192, positions=131072, theta=500_000.0,
        rope_scaling=_LLAMA32_ROPE, tie_word_embeddings=True),
    "mistral-7b": _preset(  # v0.1, the one with a window
        "Mistral", vocab=32000, hidden=4096, layers=32, heads=32, kv=8, ffn=14336, positions=32768, theta=10_000.0,
        sliding_window=4096),
    "qwen2.5-0.5b": _preset(
        "Qwen2", vocab=151936, hidden=896, layers=24, heads=14, kv=2, ffn=4864, positions=32768, theta=1_000_000.0,
        rms_norm_eps=1e-6, tie_word_embeddings=True),
    "qwen3-0.6b": _preset(
        "Qwen3", vocab=151936, hidden=1024, layers=28, heads=16, kv=8, ffn=3072, positions=40960, theta=1_000_000.0,
        head_dim=128, rms_norm_eps=1e-6, tie_word_embeddings=True),
    "gemma-3-1b": _preset(
        "Gemma3", vocab=262144, hidden=1152, layers=26, heads=4, kv=1, ffn=6912, positions=32768, theta=1_000_000.0,
        head_dim=256, rms_norm_eps=1e-6, tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=256, sliding_window=512, sliding_window_pattern=6, rope_local_base_freq=10_000.0),
}
# fmt: on
