"""Options that no model could serve are refused at once, with one line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jaxserve.main_job.settings import DecodeConfig
from models.errors import UserError


def test_the_largest_batch():
    assert DecodeConfig("m", batches=(1, 64, 8)).rows == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": (8, 0)}, "--batch is 0; it must be at least 1"),
        ({"batches": (-3,)}, "--batch is -3; it must be at least 1"),
        ({"batches": ()}, "--batch is empty"),
        ({"max_new_tokens": 0}, "--max-tokens is 0; it must be at least 1"),
        ({"context": 0}, "--context is 0; it must be at least 1"),
        ({"page_size": 0}, "--page-size is 0; it must be at least 1"),
        ({"page_size": -1}, "--page-size is -1"),
        ({"dtype": "int3"}, "--dtype 'int3' is not supported; give auto, float32 or bfloat16"),
        ({"layers": "rolled"}, "--layers 'rolled' is unknown; give auto, unrolled, scanned"),
        ({"kv_dtype": "auto"}, "--kv-dtype 'auto' is not supported; give float32 or bfloat16"),
    ],
)
def test_refused(change: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message) as caught:
        DecodeConfig("m", **change)
    assert "\n" not in str(caught.value)


def test_compile_cache_must_be_a_folder(tmp_path: Path):
    DecodeConfig("m", compile_cache=tmp_path)
    DecodeConfig("m", compile_cache=tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is not a folder; give one, or a name that is not taken"):
        DecodeConfig("m", compile_cache=tmp_path / "file")


def test_compile_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """JAX itself goes on without a cache, and warns for every program."""
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--compile-cache \S+/file/new/er is not a folder, because of \S+/file; give"):
        DecodeConfig("m", compile_cache=tmp_path / "file" / "new" / "er")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(
        UserError, match=r"--compile-cache \S+/new cannot be written to, because of \S+; give a folder of your own"
    ):
        DecodeConfig("m", compile_cache=tmp_path / "new")
