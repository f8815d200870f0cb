"""The folder of compiled programs: what can be none is refused, whatever lies in it is whole or not used, and one line says so.

Oracle: the file system, and what was put in.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.engine.build import choose
from jaxserve.engine.config import EngineConfig
from jaxserve.main_job.settings import DecodeConfig
from jaxserve.options import CACHE, takes
from jaxserve.programs.compile_cache import ABANDONED, CompileCache, check_cache
from models.errors import UserError

KEY, OTHER = "a" * 64, "b" * 64
CONTENT = b"machine code " * 100


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "programs")


def file(cache: CompileCache, key: str = KEY) -> Path:
    return cache.folder / f"{key}.program"


def said(cache: CompileCache, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    cache.tell()
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


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
        EngineConfig("random:tiny", rows=1, context=16, compile_cache=tmp_path / name)
    with pytest.raises(UserError, match=says):
        DecodeConfig("random:tiny", compile_cache=tmp_path / name)


@pytest.mark.parametrize("choice", ["", "null\0character", 5, 1.5, b"folder", ["folder"]], ids=repr)
def test_what_names_no_folder(choice: object):
    with pytest.raises(UserError, match=r"compile_cache is .*; give a folder, or False to keep no compiled programs"):
        EngineConfig("random:tiny", compile_cache=choice)  # type: ignore[arg-type]


def test_the_users_own_folder_none_or_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for choice in (None, True):
        check_cache(choice, "compile_cache")
        chosen = CompileCache.of(choice, "compile_cache")
        assert chosen and chosen.folder == tmp_path / "jaxserve" / "programs" and not chosen.folder.exists()
    assert CompileCache.of(False, "compile_cache") is None
    other = CompileCache.of(str(tmp_path / "other"), "compile_cache")
    assert other and other.folder == tmp_path / "other" and other.folder.is_dir()


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch):
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nobody)
    assert CompileCache.of(None, "compile_cache") is None


@pytest.mark.parametrize(
    ("arguments", "choice"),
    [
        ([], None),
        (["--compile-cache", "here"], Path("here")),
        (["--no-compile-cache"], False),
        (["--compile-cache", "here", "--no-compile-cache"], False),
        (["--no-compile-cache", "--compile-cache", "here"], Path("here")),
    ],
)
def test_the_last_of_both_options_counts(arguments: list[str], choice: object):
    found: list[object] = []

    @click.command()
    @takes(CACHE)
    def command(compile_cache: object) -> None:
        found.append(compile_cache)

    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert found == [choice] and type(found[0]) is type(choice)
    assert isinstance(CliRunner().invoke(command, ["--compile-cache", ""]).exception, UserError)


def test_it_is_made_when_it_is_used_and_not_before(tmp_path: Path):
    folder = tmp_path / "above" / "cache"
    setup = choose(EngineConfig("random:tiny", dtype="float32", rows=1, context=16, page_size=8, compile_cache=folder))
    assert not folder.exists()
    setup.load()
    assert folder.is_dir()


def test_a_folder_that_seemed_possible_and_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(self: Path, **options: bool) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=r"compile_cache .* can't be made: Read-only file system; give a folder that can be"):
        CompileCache.of(tmp_path / "cache", "compile_cache")


def test_what_was_put_is_there_for_the_next(cache: CompileCache, caplog: pytest.LogCaptureFixture):
    assert cache.get(KEY) is None
    cache.put(KEY, CONTENT)
    assert CompileCache(cache.folder).get(KEY) == cache.get(KEY) == CONTENT and cache.get(OTHER) is None
    assert [path.name for path in cache.folder.iterdir()] == [f"{KEY}.program"]
    assert said(cache, caplog) == []


@given(st.data())
def test_no_entry_that_was_changed_is_used(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    """Cut off anywhere, any byte another one, anything behind: it is None, and what is put then is in its place."""
    cache = CompileCache(tmp_path_factory.mktemp("programs"))
    cache.put(KEY, CONTENT[: data.draw(st.integers(0, 99))])
    content, whole = cache.get(KEY), bytearray(file(cache).read_bytes())
    match data.draw(st.sampled_from(["cut", "flip", "more"])):
        case "cut":
            del whole[data.draw(st.integers(0, len(whole) - 1)) :]
        case "flip":
            whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        case _:
            whole += data.draw(st.binary(min_size=1, max_size=9))
    file(cache).write_bytes(whole)
    assert cache.get(KEY) is None
    cache.put(KEY, CONTENT)
    assert content is not None and cache.get(KEY) == CONTENT


@pytest.mark.parametrize("kind", ["empty", "foreign", "of another key", "a folder", "unreadable"])
def test_whatever_lies_there_costs_a_line(
    cache: CompileCache, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    cache.put(OTHER, CONTENT)
    match kind:
        case "empty":
            file(cache).touch()
        case "foreign":
            file(cache).write_bytes(b"x\x9c of somebody else")
        case "of another key":
            file(cache).write_bytes(file(cache, OTHER).read_bytes())
        case "a folder":
            file(cache).mkdir()
        case _:  # root may read what nobody may

            def refuse(self: Path) -> bytes:
                raise PermissionError(errno.EACCES, "Permission denied")

            file(cache).touch()
            monkeypatch.setattr(Path, "read_bytes", refuse)
    assert cache.get(KEY) is None and cache.get(KEY) is None
    (line,) = said(cache, caplog)
    assert line.startswith(f"1 kept program in {cache.folder} could not be used (") and "\n" not in line
    assert said(cache, caplog) == []
    monkeypatch.undo()
    cache.put(KEY, CONTENT)
    assert cache.get(KEY) == (None if kind == "a folder" else CONTENT)  # which somebody has put there on purpose


def test_a_full_disk_costs_one_line_and_no_more(
    cache: CompileCache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    asked: list[Path] = []

    def full(self: Path, content: bytes) -> int:
        asked.append(self)
        with self.open("wb") as half:
            half.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    cache.put(OTHER, CONTENT)
    monkeypatch.setattr(Path, "write_bytes", full)
    for key in (KEY, OTHER, KEY):
        cache.put(key, CONTENT)
    assert len(asked) == 1 and cache.get(OTHER) == CONTENT and cache.get(KEY) is None
    assert said(cache, caplog) == [
        f"compiled programs can't be kept in {cache.folder} (No space left on device); the next start compiles them again"
    ]
    assert [path.name for path in cache.folder.iterdir()] == [f"{OTHER}.program"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_only_be_read_is_read(cache: CompileCache, caplog: pytest.LogCaptureFixture):
    cache.put(KEY, CONTENT)
    cache.folder.chmod(0o500)
    again = CompileCache.of(cache.folder, "compile_cache")
    check_cache(cache.folder, "compile_cache")
    assert again and again.get(KEY) == CONTENT
    again.put(OTHER, CONTENT)
    assert "can't be kept" in "".join(said(again, caplog))


def test_readers_see_nothing_or_all_while_others_write(cache: CompileCache):
    contents = {bytes([i]) * 200_000 for i in range(4)}
    done, seen = threading.Event(), set[bytes | None]()

    def write(content: bytes) -> None:
        mine = CompileCache(cache.folder)
        while not done.is_set():
            mine.put(KEY, content)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    for _ in range(200):
        seen.add(cache.get(KEY))
    done.set()
    for writer in writers:
        writer.join()
    assert seen <= contents | {None} and seen & contents and not cache._broken


def test_those_unused_for_longest_go_first_and_no_others_file_does(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    cache = CompileCache(tmp_path, limit=3 * 1200)
    (tmp_path / "my notes.txt").write_text("x" * 5000)
    keys = [letter * 64 for letter in "abcd"]
    for i, key in enumerate(keys):
        cache.put(key, b"x" * 1000)
        os.utime(file(cache, key), (i, i))
    abandoned, young = (tmp_path / f"{name}.program-unfinished" for name in ("old", "young"))
    abandoned.touch()
    young.touch()
    os.utime(abandoned, (young.stat().st_mtime - 2 * ABANDONED,) * 2)
    assert cache.get(keys[0])
    assert said(cache, caplog) == []
    assert {path.name[0] for path in tmp_path.glob("*.program")} == {"a", "c", "d"}
    assert (tmp_path / "my notes.txt").exists() and young.exists() and not abandoned.exists()
