"""The architecture of a decoder-only GQA transformer as one frozen value.

A `ModelConfig` is everything that decides shapes and arithmetic; weights, cache and requests know no more about a model than
this. It is built from a Hugging Face ``config.json`` (`models.config.hf_config.from_hf`), which is also the form that GGUF metadata is
translated to, or from a preset (`models.config.presets`).
"""

from __future__ import annotations

import dataclasses

from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding of one kind of layer (Su et al. 2021, and the scalings named in `kind`).

    `kind` is one of default, linear, dynamic, llama3, yarn. `original_positions` is the context that the model was trained on
    before scaling; it is used by dynamic, llama3 and yarn. `attention_factor` multiplies cos and sin (yarn), None means the
    paper's 0.1 ln(factor) + 1.
    """

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    original_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Shapes and arithmetic of a model. Sizes count elements; `windows[i]` is the window of layer i in tokens, None for all."""

    architecture: str
    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    norm_eps: float
    max_positions: int
    rope: RopeConfig
    windows: tuple[int | None, ...]
    rope_local: RopeConfig | None = None  # of layers that have a window, where it differs (Gemma 3)
    tied_head: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sandwich_norms: bool = False  # norms after attention and after the MLP too
    norm_offset: float = 0.0  # a norm multiplies by (offset + weight): 1 in Gemma
    activation: str = "silu"
    embedding_scale: float = 1.0
    attention_scale: float = 0.0  # multiplies q.k; set to head_dim**-0.5 when 0 is given
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    eos_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.attention_scale:
            object.__setattr__(self, "attention_scale", self.head_dim**-0.5)
        sizes = ("vocab_size", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "max_positions")
        for name in sizes:
            if getattr(self, name) < 1:
                raise UserError(f"config: {name} is {getattr(self, name)}; it must be at least 1")
        if self.heads % self.kv_heads:
            raise UserError(f"config: {self.heads} attention heads do not divide into {self.kv_heads} KV heads")
        if self.head_dim % 2:
            raise UserError(f"config: head_dim is {self.head_dim}; rotary embedding needs an even number")
        if len(self.windows) != self.layers:
            raise UserError(f"config: {len(self.windows)} layer windows for {self.layers} layers")

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def qkv_dim(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    def first_layers(self, count: int) -> ModelConfig:
        """The same model with its first layers alone."""
        return dataclasses.replace(self, layers=count, windows=self.windows[:count])

    def first_layer(self) -> ModelConfig:
        """The same model with its first layer alone."""
        return self.first_layers(1)

    def layer_rope(self, layer: int) -> RopeConfig:
        return self.rope_local if self.rope_local is not None and self.windows[layer] is not None else self.rope

    def kv_bytes_per_token(self, itemsize: int) -> int:
        """Bytes of K and V of one token over all layers (facts: 131,072 B for Llama-3-8B at 2 bytes)."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize
