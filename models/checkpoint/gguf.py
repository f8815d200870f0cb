"""A checkpoint in one GGUF file, seen as a Hugging Face one.

Three things differ between the two formats and are undone here: the names; the rows of q and k, which files of architecture
"llama" keep in the interleaved order of rotary pairs (i, i + 1) instead of halves (i, i + head_dim / 2); and the norms of
Gemma 3, which are stored with the 1 of (1 + weight) already added.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from models.checkpoint.gguf_config import hf_config
from models.checkpoint.gguf_file import GGUFFile, shown_value
from models.checkpoint.gguf_keys import understood
from models.config.hf_config import from_hf
from models.errors import UserError
from models.files.provenance import Ignored, Provenance
from models.files.reading import shown
from models.text.gguf_tokenizer import end_tokens, from_metadata
from models.text.tokenizer import Tokenizer

_ROPE_FACTORS, _EMBEDDING = "rope_freqs.weight", "token_embd.weight"

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

    The first of several files of one model (``NAME-00001-of-00003.gguf``) stands for all of them.

    Raises:
      UserError: whatever `GGUFFile`, `understood`, `hf_config` and `from_hf` refuse, naming the file.
    """

    def __init__(self, path: Path):
        first = GGUFFile(path)
        self.origin = str(path)
        files = _parts(first)
        self._metadata, ignored = understood(first.metadata, self.origin)
        self._files = {name: file for file in files for name in file.tensors}
        self._kind = self._metadata["general.architecture"]
        factors = self._files[_ROPE_FACTORS].read(_ROPE_FACTORS) if _ROPE_FACTORS in self._files else None
        rows = self._files[_EMBEDDING].tensors[_EMBEDDING].shape[0] if _EMBEDDING in self._files else None
        ends = list(end_tokens(self._metadata, self.origin))
        config = hf_config(self._metadata, self._files.keys(), factors, rows, ends, self.origin)
        self.config = from_hf(config, origin=self.origin)
        self._stored = {self._hf_name(name): name for name in self._files if name != _ROPE_FACTORS}
        self.provenance = Provenance(
            weights=tuple(file.path.name for file in files),
            config=(path.name,),
            ignored=tuple(Ignored(path.name, key, why) for key, why in ignored.items()),
        )

    def names(self) -> list[str]:
        return sorted(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._files[self._stored[name]].tensors[self._stored[name]].shape

    def read(self, name: str) -> np.ndarray:
        data = self._files[self._stored[name]].read(self._stored[name])
        if self._kind == "gemma3" and name.endswith("norm.weight"):
            return data.astype(np.float32) - 1.0
        if self._kind == "llama" and ".q_proj." in name:
            return halves(data, self.config.heads)
        if self._kind == "llama" and ".k_proj." in name:
            return halves(data, self.config.kv_heads)
        return data

    def tokenizer(self) -> Tokenizer:
        return from_metadata(self._metadata, self.origin, self.config.vocab_size)

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


_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def _parts(first: GGUFFile) -> list[GGUFFile]:
    """All files of a model, by llama.cpp's rules: the first has the metadata, and the name of each says which it is."""
    path, count = first.path, _split(first, "count", 1)
    if count <= 1:
        return [first]
    named = _PART.fullmatch(path.name)
    if named is None or int(named[3]) != count or int(named[2]) - 1 != _split(first, "no", 0):
        rule = f"the names of its {count} files must end in -00001-of-{count:05}.gguf and so on"
        raise UserError(f"{path}: one part of a model; {rule}; give each its name back")
    if int(named[2]) != 1:
        raise UserError(f"{path}: part {int(named[2])} of {count}; give the first, {named[1]}-00001-of-{named[3]}.gguf")
    files, places = [first], dict.fromkeys(first.tensors, path)
    for number in range(1, count):
        part = path.with_name(f"{named[1]}-{number + 1:05}-of-{named[3]}.gguf")
        if not part.is_file():
            raise UserError(f"{part}: no such file, and the model is in {count}; download it too")
        files.append(GGUFFile(part))
        if _split(files[-1], "no", 0) != number or _split(files[-1], "count", count) != count:
            raise UserError(f"{part}: not part {number + 1} of {count}, as its name says; download it again")
        for name in files[-1].tensors:
            if name in places:
                raise UserError(f"{part}: tensor {shown(name)} is in {places[name].name} too; download both again")
            places[name] = part
    if (promised := _split(first, "tensors.count", len(places))) != len(places):
        raise UserError(f"{path}: its {count} files hold {len(places)} tensors and must hold {promised}; download them again")
    return files


def _split(file: GGUFFile, key: str, default: int) -> int:
    value = file.metadata.get(f"split.{key}", default)
    if not isinstance(value, int):
        raise UserError(f"{file.path}: split.{key} is {shown_value(value)}; it must be a whole number; download the file again")
    return value


def halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from interleaved rotary pairs to halves: rows [heads * head_dim, ...] -> the same shape.

    Row 2i + j of a head moves to row j * head_dim / 2 + i.
    """
    if rows.shape[0] % (2 * heads):  # a wrong shape: the loader compares it with the right one and names the tensor
        return rows
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
