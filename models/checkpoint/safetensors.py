"""A checkpoint in a Hugging Face folder: config.json and one or more safetensors files, memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from models.errors import UserError
from models.hf_config import from_hf
from models.provenance import Provenance
from models.tokenizer import Tokenizer, from_folder

_DTYPES = ("F32", "F16", "BF16")
_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"


class SafetensorsCheckpoint:
    """Implements `models.checkpoint.base.Checkpoint`.

    Args:
      folder: holds config.json, model.safetensors or model.safetensors.index.json with its shards, and for text
        tokenizer.json. generation_config.json, where present, has the last word on the ids that end an answer.
      origin: named in messages; the folder by default.

    Raises:
      UserError: a file is missing or damaged, a tensor has another dtype than F32, F16 or BF16, or the config is refused.
    """

    def __init__(self, folder: Path, *, origin: str | None = None):
        self._folder = folder
        self.origin = origin or str(folder)
        config = _read_json(folder / "config.json", f"{folder}: not a model folder, there is no config.json in it")
        self._files: dict[str, safe_open] = {}  # tensor name -> open file
        shards = list(self._shards())
        self._weights = tuple(path.name for path, _ in shards)
        for path, expected in shards:
            self._open(path, expected)
        if "lm_head.weight" in self._files:  # a config that does not say is settled by the file
            config.setdefault("tie_word_embeddings", False)
        generation = folder / "generation_config.json"
        if generation.is_file():
            config["eos_token_id"] = _read_json(generation, "").get("eos_token_id", config.get("eos_token_id"))
        self.config = from_hf(config, origin=str(folder / "config.json"))

    def names(self) -> list[str]:
        return sorted(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._files[name].get_slice(name).get_shape())

    def read(self, name: str) -> np.ndarray:
        return self._files[name].get_tensor(name)

    @property
    def provenance(self) -> Provenance:
        """Of config and weights."""
        return Provenance(weights=self._weights, config=("config.json",))

    def tokenizer(self) -> Tokenizer:
        return from_folder(self._folder, self.config.bos_token, self.config.eos_tokens)

    def _shards(self) -> Iterator[tuple[Path, list[str] | None]]:
        """Each file with the names that the index promises in it; None where there is no index."""
        index = self._folder / _INDEX
        if not index.is_file():
            if not (self._folder / _FILE).is_file():
                raise UserError(f"{self._folder}: neither {_FILE} nor {_INDEX} is in it; download the model again")
            yield self._folder / _FILE, None
            return
        where = _read_json(index, "").get("weight_map")
        if not isinstance(where, dict) or not all(isinstance(shard, str) for shard in where.values()):
            raise UserError(f"{index}: key 'weight_map' is missing or names no files; download it again")
        for shard in sorted(set(where.values())):
            names = [name for name, of in where.items() if of == shard]
            path = self._folder / shard
            if not path.is_file():
                raise UserError(f"{path}: no such file, though {_INDEX} puts {len(names)} tensors there; download it again")
            yield path, names

    def _open(self, path: Path, expected: list[str] | None) -> None:
        try:
            file = safe_open(path, framework="numpy")
        except (SafetensorError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{path}: truncated or not a safetensors file ({reason}); download it again") from None
        names = list(file.keys())
        for name in expected or ():
            if name not in names:
                raise UserError(f"{path}: tensor {name} is missing, though {_INDEX} puts it there; download both again")
        for name in names:
            dtype = file.get_slice(name).get_dtype()
            if dtype not in _DTYPES:
                raise UserError(f"{path}: tensor {name} has dtype {dtype}; supported are {', '.join(_DTYPES)}")
            self._files[name] = file


def _read_json(path: Path, missing: str) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(missing or f"{path}: no such file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}); download it again") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: not a JSON object; download it again")
    return value
