"""The folder of compiled programs: refused where JAX would pass over it, made where it isn't there. Oracle: the file system."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from jaxserve.compile_cache import check_cache, use_cache
from jaxserve.serve_settings import ServeSettings
from jaxserve.setup import choose
from models.errors import UserError


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("file", "is not a folder; give one"),
        ("file/cache", "is not a folder, because of .*file; give one"),
        ("x" * 300, "can't be made: File name too long; give a folder that can be"),
    ],
)
def test_what_can_be_no_folder(tmp_path: Path, name: str, says: str):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"^--compile-cache .* ?{says}"):
        check_cache(tmp_path / name, "--compile-cache")
    with pytest.raises(UserError, match=says):
        ServeSettings("random:tiny", rows=1, context=16, compile_cache=tmp_path / name)


def test_it_is_made_when_it_is_used_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said: dict[str, object] = {}
    monkeypatch.setattr(jax.config, "update", said.__setitem__)
    folder = tmp_path / "above" / "cache"
    setup = choose(ServeSettings("random:tiny", dtype="float32", rows=1, context=16, page_size=8, compile_cache=folder))
    assert not folder.exists()
    setup.load()
    assert folder.is_dir() and said["jax_compilation_cache_dir"] == str(folder)


def test_a_folder_that_seemed_possible_and_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(self: Path, **options: bool) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=r"compile_cache .* can't be made: Read-only file system; give a folder that can be"):
        use_cache(tmp_path / "cache", "compile_cache")
