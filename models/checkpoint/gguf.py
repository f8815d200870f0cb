"""A checkpoint in one GGUF file, seen as a Hugging Face one.

Three things differ between the two formats and are undone here: the names; the rows of q and k, which files of architecture
"llama" keep in the interleaved order of rotary pairs (i, i + 1) instead of halves (i, i + head_dim / 2); and the norms of
Gemma 3, which are stored with the 1 of (1 + weight) already added.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models.checkpoint.gguf_config import hf_config
from models.checkpoint.gguf_file import GGUFFile
from models.gguf_tokenizer import from_metadata
from models.hf_config import from_hf
from models.provenance import Provenance
from models.tokenizer import Tokenizer

_ROPE_FACTORS = "rope_freqs.weight"

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}


class GGUFCheckpoint:
    """Implements `models.checkpoint.base.Checkpoint`.

    Raises:
      UserError: whatever `GGUFFile`, `hf_config` and `from_hf` refuse, naming the file.
    """

    def __init__(self, path: Path):
        self._file = GGUFFile(path)
        self.origin = str(path)
        self.provenance = Provenance(weights=(path.name,), config=(path.name,))
        metadata, tensors = self._file.metadata, self._file.tensors
        self._kind = metadata.get("general.architecture")
        factors = self._file.read(_ROPE_FACTORS) if _ROPE_FACTORS in tensors else None
        self.config = from_hf(hf_config(metadata, tensors, factors, self.origin), origin=self.origin)
        self._stored = {self._hf_name(name): name for name in tensors if name != _ROPE_FACTORS}

    def names(self) -> list[str]:
        return sorted(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.tensors[self._stored[name]].shape

    def read(self, name: str) -> np.ndarray:
        data = self._file.read(self._stored[name])
        if self._kind == "gemma3" and name.endswith("norm.weight"):
            return data.astype(np.float32) - 1.0
        if self._kind == "llama" and ".q_proj." in name:
            return halves(data, self.config.heads)
        if self._kind == "llama" and ".k_proj." in name:
            return halves(data, self.config.kv_heads)
        return data

    def tokenizer(self) -> Tokenizer:
        return from_metadata(self._file.metadata, self.config.eos_tokens, self.origin)

    def _hf_name(self, name: str) -> str:
        """The Hugging Face name; a name that is not known stays as it is, for the loader to report."""
        stem, _, suffix = name.rpartition(".")
        if stem in _TOP:
            return f"{_TOP[stem]}.{suffix}"
        prefix, _, part = stem.rpartition(".")
        if part not in _LAYER or not prefix.startswith("blk."):
            return name
        target = _LAYER[part]
        if part == "ffn_norm" and self._kind == "gemma3":  # the one layer kind with norms on both sides
            target = "pre_feedforward_layernorm"
        return f"model.layers.{prefix.removeprefix('blk.')}.{target}.{suffix}"


def halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from interleaved rotary pairs to halves: rows [heads * head_dim, ...] -> the same shape.

    Row 2i + j of a head moves to row j * head_dim / 2 + i.
    """
    if rows.shape[0] % (2 * heads):  # a wrong shape: the loader compares it with the right one and names the tensor
        return rows
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
