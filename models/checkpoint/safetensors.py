"""A checkpoint in a Hugging Face folder: config.json and one or more safetensors files, memory-mapped.

Which file gives a tensor is what transformers and vLLM agree on: the index where there is one, else model.safetensors. What they read
differently is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import jax  # noqa: F401  it makes bfloat16 known to numpy, without which safe_open has no arrays of it
import numpy as np
from safetensors import SafetensorError, safe_open

from models.config.hf_config import from_hf, ignored_keys
from models.errors import UserError, short
from models.files.json_text import parse_json, read_object
from models.files.provenance import Ignored, Provenance
from models.files.reading import opened
from models.text import text_keys
from models.text.hf_tokenizer import ends_of, from_folder
from models.text.text_keys import GENERATION_CONFIG
from models.text.tokenizer import Tokenizer

_DTYPES = ("F32", "F16", "BF16")
_CONFIG, _ADAPTER = "config.json", "adapter_config.json"
_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_AGAIN = "download it again"
_MAX_JSON = 16 << 20  # bytes of a config, an index or a header; the largest published ones have a tenth of it
_BUFFERS = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
_OTHERS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".gguf",
    ".h5",
    ".msgpack",
)  # forms in which weights lie beside those that are read
_EMBED, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_COMPARED = 1 << 22  # elements of two tensors that are compared at a time


class _Stored(NamedTuple):
    """A tensor: the file, open, and its name there."""

    file: safe_open
    name: str
    shard: str


class SafetensorsCheckpoint:
    """Implements `models.checkpoint.base.Checkpoint`.

    Args:
      folder: holds config.json, model.safetensors or model.safetensors.index.json with its shards, and for text
        tokenizer.json. Every file that names ids that end an answer is heard.
      origin: named in messages; the folder by default.

    Raises:
      UserError: a file is missing or damaged, files contradict each other, a tensor has another dtype than F32, F16 or BF16, or the
        config is refused.
    """

    def __init__(self, folder: Path, *, origin: str | None = None):
        self._folder = folder
        self.origin = origin or str(folder)
        if not (folder / _CONFIG).is_file():
            raise UserError(f"{folder}: not a model folder, there is no {_CONFIG} in it")
        config = _object(folder / _CONFIG)
        if (folder / _ADAPTER).is_file():
            raise UserError(
                f"{folder / _ADAPTER}: an adapter lies in the folder; merge it into the model, or take the file away"
            )
        generation = _object(folder / GENERATION_CONFIG) if (folder / GENERATION_CONFIG).is_file() else {}
        self._ends = [*ends_of(config, folder / _CONFIG), *ends_of(generation, folder / GENERATION_CONFIG)]
        config["eos_token_id"] = list(dict.fromkeys(token for token, _ in self._ends))
        self.config = from_hf(config, origin=str(folder / _CONFIG))
        self._tensors: dict[str, _Stored] = {}
        ignored, remarks = [*ignored_keys(config, _CONFIG), *text_keys.ignored(GENERATION_CONFIG, generation)], list[str]()
        shards = self._shards()
        for shard, names in shards.items():
            ignored += self._open(shard, names)
        if self.config.tied_head and _HEAD in self._tensors:
            self._settle_head(ignored, remarks)
        self.provenance = Provenance(
            weights=tuple(shards),
            config=(_CONFIG,),
            ignored=(*ignored, *self._unread(shards)),
            remarks=tuple(remarks),
        )

    def names(self) -> list[str]:
        return sorted(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        file, stored, _ = self._tensors[name]
        return tuple(file.get_slice(stored).get_shape())

    def read(self, name: str) -> np.ndarray:
        file, stored, _ = self._tensors[name]
        return file.get_tensor(stored)

    def tokenizer(self) -> Tokenizer:
        return from_folder(self._folder, self._ends, self.config.vocab_size)

    def _shards(self) -> dict[str, list[str] | None]:
        """Each file, by its path within the folder, with the tensors to take from it; None, all of them, where there is no index."""
        index, single = self._folder / _INDEX, (self._folder / _FILE).is_file()
        if not index.is_file():
            if not single:
                raise UserError(f"{self._folder}: neither {_FILE} nor {_INDEX} is in it; {self._found()}")
            return {_FILE: None}
        where = _object(index, strict=True).get("weight_map")
        if not isinstance(where, dict) or not where or not all(isinstance(shard, str) for shard in where.values()):
            raise UserError(f"{index}: key 'weight_map' is missing or names no files; {_AGAIN}")
        shards: dict[str, list[str] | None] = {}
        for shard in sorted(set(where.values())):
            names = [name for name, of in where.items() if of == shard]
            if not _inside(shard):
                raise UserError(f"{index}: {short(names[0])} lies in {short(shard)}, which is no file of this folder; {_AGAIN}")
            if not _is_file(self._folder / shard):
                missing = f"no such file, though {_INDEX} puts {len(names)} tensors there; download it again"
                raise UserError(f"{self._folder / shard}: {missing}")
            shards[shard] = names
        if single and _FILE not in shards:
            raise UserError(
                f"{self._folder}: both {_FILE} and {_INDEX} are in it, and the index does not name the file; transformers reads the one "
                "and vLLM the other; take one of them away"
            )
        return shards

    def _open(self, shard: str, wanted: list[str] | None) -> list[Ignored]:
        """Enter the tensors of a file; returns those that are passed over."""
        path = self._folder / shard
        _check_header(path)
        try:
            file = safe_open(path, framework="numpy")
        except (SafetensorError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{path}: truncated or not a safetensors file ({reason}); {_AGAIN}") from None
        stored, ignored = list(file.keys()), []
        take = set(stored if wanted is None else wanted)
        for name in sorted(take - set(stored)):
            raise UserError(f"{path}: tensor {_shown(name)} is missing, though {_INDEX} puts it there; download both again")
        for name in stored:
            if name not in take:
                ignored.append(Ignored(shard, name, f"{_INDEX} does not name it here"))
            elif name.endswith(_BUFFERS):
                ignored.append(Ignored(shard, name, "rotary angles are made from the config"))
            else:
                dtype = file.get_slice(name).get_dtype()
                if dtype not in _DTYPES:
                    raise UserError(f"{path}: tensor {_shown(name)} has dtype {dtype}; supported are {', '.join(_DTYPES)}")
                self._tensors[name] = _Stored(file, name, shard)
        return ignored

    def _settle_head(self, ignored: list[Ignored], remarks: list[str]) -> None:
        """A head in the files, though the config says that the embedding is the head: as in transformers 5, whichever is there serves
        as both, one copy of two equal ones is kept, and two different ones are both used."""
        head = self._tensors[_HEAD]
        if _EMBED not in self._tensors:
            self._tensors[_EMBED] = self._tensors.pop(_HEAD)
            remarks.append(f"{_HEAD} serves as the embedding too, for tie_word_embeddings is true and {_EMBED} is not there")
        elif _equal(head, self._tensors[_EMBED]):
            del self._tensors[_HEAD]
            ignored.append(Ignored(head.shard, _HEAD, "a copy of the embedding, which is the head"))
        else:
            self.config = dataclasses.replace(self.config, tied_head=False)
            remarks.append(
                f"{_HEAD} is the head, for it differs from the embedding though tie_word_embeddings is true; so does transformers 5, "
                "while vLLM and transformers 4 drop it"
            )

    def _unread(self, shards: Iterable[str]) -> list[Ignored]:
        """Other files of weights in the folder."""
        read, why = set(shards), "not among the files that give the weights"
        files = sorted(path.name for path in self._folder.iterdir() if path.suffix in _OTHERS and path.name not in read)
        return [Ignored(name, "the file", why) for name in files]

    def _found(self) -> str:
        """What to do about a folder without weights, by what lies in it."""
        files = [entry.file for entry in self._unread(())]
        if not files:
            return "download the model again"
        others = f" and {len(files) - 1} more" if len(files) > 1 else ""
        return f"there is {short(files[0])}{others}; save the model again with transformers' save_pretrained"


def _object(path: Path, *, strict: bool = False) -> dict[str, Any]:
    return read_object(path, fix=_AGAIN, strict=strict, most=_MAX_JSON)


def _inside(shard: str) -> bool:
    """Whether a name of an index stays below the folder. Where a link leads is not looked at: the Hub's cache is made of them."""
    path = PurePosixPath(shard)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and shard.isprintable()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _check_header(path: Path) -> None:
    """Refuse what safe_open takes: a header that costs too much to read, and a tensor that is named twice (it takes the last)."""
    with opened(path, fix=_AGAIN) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_JSON:
            raise UserError(f"{path}: its header is said to have {length} bytes, and at most {_MAX_JSON} are read; {_AGAIN}")
        header = file.read(length)
    try:
        parse_json(header)
    except UserError as error:
        raise UserError(f"{path}: truncated or not a safetensors file (its header: {error}); {_AGAIN}") from None


def _equal(one: _Stored, other: _Stored) -> bool:
    """Whether two tensors hold the same numbers. A few rows at a time: they may be gigabytes."""
    a, b = one.file.get_slice(one.name), other.file.get_slice(other.name)
    shape = a.get_shape()
    if shape != b.get_shape() or len(shape) != 2 or 0 in shape:
        return False
    rows = max(_COMPARED // shape[1], 1)
    ends = ((at, min(at + rows, shape[0])) for at in range(0, shape[0], rows))
    parts = ((a[at:end], b[at:end]) for at, end in ends)
    return all(np.array_equal(x.astype(np.float32), y.astype(np.float32)) for x, y in parts)


def _shown(name: str) -> str:
    """A tensor's name for a message."""
    return name if name.isprintable() and len(name) <= 100 else short(name)
