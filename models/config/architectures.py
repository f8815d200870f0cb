"""The architectures that run: one entry each. The config reader, the GGUF reader, the engine and the cost model know them from here."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Entry:
    """How an architecture differs from the others. Defaults of keys that are missing are those of its class in transformers.

    Attributes:
      name: ours.
      hf_class: in a config.json's `architectures`.
      model_type: what a config.json may say beside it.
      gguf: general.architecture of a GGUF file; None where there is none of its own.
      kv_heads, head_dim: where the key is missing, which is not the same as null. None: as many KV heads as heads; hidden_size / heads.
      bias: of q, k and v: as `attention_bias` says, always, or never; those of `attention_bias` go for the output too.
      windows: layers with a window: none; all, where the config has one; those from `max_window_layers` on, where it is on; or by a
        pattern, all but every sixth.
      qk_norm: queries and keys are normed, head by head.
      gemma: norms around each part of a block and with an offset of 1, scaled embeddings, GELU, its own scale of queries, a second RoPE
        for layers with a window, a tied head unless the config says otherwise (Gemma team 2025).
      like: another architecture's name, whose config keys it has; None for keys of its own.
    """

    name: str
    hf_class: str
    model_type: str
    gguf: str | None
    kv_heads: int | None = None
    head_dim: int | None = None
    bias: Literal["key", "always", "never"] = "key"
    windows: Literal["none", "all", "later", "pattern"] = "none"
    qk_norm: bool = False
    gemma: bool = False
    like: str | None = None

    @property
    def rows(self) -> str:
        """Whose rows of `models.config.hf_keys.KEYS` say what becomes of a config's keys."""
        return self.like or self.name


ARCHITECTURES: dict[str, Entry] = {
    entry.hf_class: entry
    for entry in (
        Entry("llama", "LlamaForCausalLM", "llama", "llama"),
        Entry("mistral", "MistralForCausalLM", "mistral", None, kv_heads=8, bias="never", windows="all"),
        Entry("qwen2", "Qwen2ForCausalLM", "qwen2", "qwen2", kv_heads=32, bias="always", windows="later"),
        Entry("qwen3", "Qwen3ForCausalLM", "qwen3", "qwen3", kv_heads=32, head_dim=128, windows="later", qk_norm=True),
        Entry(
            "gemma3",
            "Gemma3ForCausalLM",
            "gemma3_text",
            "gemma3",
            kv_heads=4,
            head_dim=256,
            windows="pattern",
            qk_norm=True,
            gemma=True,
        ),
    )
}


def gguf_architectures() -> dict[str, Entry]:
    """By the name that GGUF files give them."""
    return {entry.gguf: entry for entry in ARCHITECTURES.values() if entry.gguf is not None}
