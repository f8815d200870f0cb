"""Starts of a command with a compile cache in every state. Oracle: the first start, which compiled everything."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxserve import decode
from tests.jaxserve import commands
from tests.jaxserve.in_process import Ran, in_process

__all__ = ["in_process"]  # a fixture
TINY = ("--model", "random:tiny", "--dtype", "float32", "--batch", "1", "--max-new-tokens", "2", "--json")


@pytest.mark.slow
@pytest.mark.usefixtures("without_jax_cache")
def test_starts(in_process: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Cold, warm, with broken entries, with a disk that takes nothing, and without: one line at most, and always the same answers."""
    monkeypatch.setenv("XDG_CACHE_HOME", commands.environment(tmp_path)["XDG_CACHE_HOME"])
    (tmp_path / "jaxserve" / "programs").unlink()  # those of the whole test run
    (tmp_path / "p.txt").write_text("a")
    folder = tmp_path / "jaxserve" / "programs"

    def start(*more: str) -> tuple[list[bool], object, list[str]]:
        ran = in_process(decode.main, *TINY, "--prompt-file", "p.txt", *more)
        assert ran.code == 0, ran.err
        found = ran.json
        return [one["kept"] for one in found["programs"]], found["runs"][0]["completions"], ran.err.splitlines()

    none, answers, said = start()
    assert not any(none) and said == []
    entries = sorted(folder.iterdir())
    assert len(entries) == len(none) + 1 > 2  # copies of KV are a program too
    assert start() == ([True] * len(none), answers, [])
    assert start("--no-compile-cache") == ([False] * len(none), answers, [])
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:1000])
    kept, again, said = start()
    assert (kept, again) == (none, answers)
    assert said == [
        f"warning: {len(entries)} kept programs in {folder} could not be used (it is cut off or was changed) and had to be compiled again"
    ]
    assert start() == ([True] * len(none), answers, [])

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # as on a full disk, a part of a file can be written
    try:
        kept, again, said = start("--compile-cache", "elsewhere")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (kept, again) == (none, answers) and list((tmp_path / "elsewhere").iterdir()) == []
    assert said == [
        "warning: compiled programs can't be kept in elsewhere (File too large); the next start compiles them again"
    ]
