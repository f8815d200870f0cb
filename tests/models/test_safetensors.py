"""Safetensors folders: every dtype, shards, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from models.checkpoint.safetensors import SafetensorsCheckpoint
from models.errors import UserError
from tests.models import checkpoints


def folder_of(tmp_path: Path) -> Path:
    config = checkpoints.hf_config()
    return checkpoints.write_folder(tmp_path / "model", config, checkpoints.hf_tensors("llama", config))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shards", [1, 3])
def test_read_returns_what_was_stored(tmp_path: Path, dtype: Any, shards: int):
    config = checkpoints.hf_config()
    tensors = checkpoints.hf_tensors("llama", config)
    found = SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors, dtype=dtype, shards=shards))
    assert found.names() == sorted(tensors)
    for name, tensor in tensors.items():
        read = found.read(name)
        assert read.dtype == dtype and found.shape(name) == tensor.shape
        np.testing.assert_array_equal(read, tensor.astype(dtype))


def test_generation_config_has_the_last_word_on_eos(tmp_path: Path):
    folder = folder_of(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 106]}))
    assert SafetensorsCheckpoint(folder).config.eos_tokens == (1, 106)
    (folder / "generation_config.json").write_text("{}")
    assert SafetensorsCheckpoint(folder).config.eos_tokens == (2,)


BREAKS = {
    "config missing": ("config.json", None, "there is no config.json"),
    "config not JSON": ("config.json", b'{"architectures": [', "config.json: not valid JSON"),
    "config not an object": ("config.json", b"[]", "config.json: not a JSON object"),
    "config not text": ("config.json", b"\xff\xfe", "config.json: not valid JSON"),
    "config nested without end": ("config.json", b'{"a":' + b"[" * 100_000, "config.json: not valid JSON"),
    "weights missing": ("model.safetensors", None, "neither model.safetensors nor"),
    "weights empty": ("model.safetensors", b"", "truncated or not a safetensors file"),
    "index broken": ("model.safetensors.index.json", b"{", "index.json: not valid JSON"),
    "index empty": ("model.safetensors.index.json", b"{}", "'weight_map' is missing"),
    "shard missing": ("model.safetensors.index.json", b'{"weight_map": {"x": "a.safetensors"}}', "a.safetensors: no such file"),
    "tensor not in shard": (
        "model.safetensors.index.json",
        b'{"weight_map": {"x": "model.safetensors"}}',
        "tensor x is missing",
    ),
    "generation config": ("generation_config.json", b"?", "generation_config.json: not valid JSON"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_broken_folders_say_what_is_wrong(tmp_path: Path, name: str):
    folder = folder_of(tmp_path)
    file, content, pattern = BREAKS[name]
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(UserError, match=pattern) as raised:
        SafetensorsCheckpoint(folder)
    assert "\n" not in str(raised.value)


def test_a_config_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    folder = folder_of(tmp_path)
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UserError, match=r"config.json: cannot be read \(Permission denied\); check its permissions"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize("dtype", [np.int8, np.float64, ml_dtypes.float8_e4m3fn])
def test_other_dtypes_are_refused_by_name(tmp_path: Path, dtype: Any):
    folder = folder_of(tmp_path)
    save_file({"model.norm.weight": np.zeros(64, dtype)}, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"tensor model.norm.weight has dtype (I8|F64|F8_E4M3); supported are F32, F16, BF16"):
        SafetensorsCheckpoint(folder)


@given(where=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_truncated_anywhere_is_one_clear_error(tmp_path: Path, where: float):
    folder = folder_of(tmp_path)
    data = (folder / "model.safetensors").read_bytes()
    for cut in {int(where * len(data)), int(where * 64), len(data) - 1}:  # data, header length and header start, last byte
        (folder / "model.safetensors").write_bytes(data[:cut])
        with pytest.raises(UserError, match=r"model.safetensors: truncated"):
            SafetensorsCheckpoint(folder)
