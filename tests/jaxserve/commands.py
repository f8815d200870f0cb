"""Runs commands as a user does, in a process of their own, with this machine's ceilings known already: nothing is measured."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from costmodel.hardware.ceilings import Ceilings, DtypeChoice
from costmodel.hardware.host import Store, cache_folder, host_key, today
from models.checkpoint.gguf_file import GGUFFile
from models.text.tokenizer import byte_tokenizer
from tests.models import checkpoints

ROOT = Path(__file__).resolve().parents[2]


def environment(cache: Path, **more: str) -> dict[str, str]:
    """Of a child whose cache folder holds made-up measurements of this machine."""
    store, host = Store(cache / "jaxserve" / "ceilings.json"), host_key()
    limits = Ceilings(host, today(), 0.0, 20e9, "made up", 100e9, "made up", 200e9, "made up")
    store.put(host, "ceilings", dataclasses.asdict(limits))
    for rows in (1, 2, 4):
        choice = DtypeChoice(host, today(), 0.0, [rows], {"float32": [1.0], "bfloat16": [2.0]})
        store.put(host, f"dtype at rows {rows}", dataclasses.asdict(choice))
    share_programs(cache)
    return {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **more}


def share_programs(cache: Path) -> None:
    """A cache folder has the compiled programs of the whole test run: nobody compiles what another one has."""
    programs = cache_folder() / "programs"
    for folder in (programs, cache / "jaxserve"):
        folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (cache / "jaxserve" / "programs").symlink_to(programs)


def run(module: str, *arguments: str, cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """`python -m module arguments` in the folder `cache`."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cache,
        env=environment(cache, **more),
    )


def error_line(stderr: str) -> str:
    """The one line that a command may say when it is refused; fails on more or on a traceback."""
    lines = stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and "Traceback" not in stderr, stderr
    return lines[0]


def folder(path: Path, **changes: Any) -> Path:
    """A tiny model in Hugging Face's layout whose tokens are bytes; `changes` go to config.json after the weights were made."""
    config = checkpoints.hf_config(eos_token_id=256)
    checkpoints.write_folder(path, config, checkpoints.hf_tensors("llama", config))
    byte_tokenizer(config["vocab_size"]).backend.save(str(path / "tokenizer.json"))
    changed = {key: value for key, value in {**config, **changes}.items() if value is not None}
    (path / "config.json").write_text(json.dumps(changed))
    return path


def gguf(path: Path) -> Path:
    """A tiny model as a GGUF file."""
    config = checkpoints.hf_config()
    return checkpoints.write_gguf(path, "llama", config, checkpoints.hf_tensors("llama", config))


def cut(path: Path, keep: int) -> Path:
    """Keep the first bytes of a file; counted from the end if negative."""
    path.write_bytes(path.read_bytes()[:keep])
    return path


def data_start(path: Path) -> int:
    """Where the tensor data of a GGUF file begin."""
    return min(info.start for info in GGUFFile(path).tensors.values())
