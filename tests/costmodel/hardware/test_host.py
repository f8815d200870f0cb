"""The cache of measurements and what identifies a machine."""

import json
from pathlib import Path

import pytest

from costmodel.hardware.host import (
    Store,
    cache_folder,
    cores,
    free_memory_bytes,
    host_key,
    last_level_cache_bytes,
    memory_bytes,
)


def test_round_trip_keeps_other_machines_and_names(tmp_path):
    store = Store(tmp_path / "deep" / "ceilings.json")
    assert store.get("a", "x") is None
    store.put("a", "x", {"v": 1})
    store.put("b", "x", {"v": 2})
    store.put("a", "y", {"v": 3})
    store.put("a", "x", {"v": 4})
    assert [store.get(*key) for key in (("a", "x"), ("a", "y"), ("b", "x"))] == [{"v": 4}, {"v": 3}, {"v": 2}]
    assert [path.name for path in store.path.parent.iterdir()] == ["ceilings.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 3}', '{"a": {"x": 3}}', "\udc80"])
def test_damaged_file_counts_as_empty_and_is_mended(tmp_path, text):
    path = tmp_path / "ceilings.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    store = Store(path)
    assert store.get("a", "x") is None
    store.put("a", "x", {"v": 1})
    assert store.get("a", "x") == {"v": 1}
    json.loads(path.read_text())


def test_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "ceilings.json")
    store.put("a", "x", {"v": 1})
    assert store.get("a", "x") is None


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "jaxserve"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "jaxserve"


def test_last_level_cache(tmp_path):
    assert last_level_cache_bytes(tmp_path) == 2**25
    for index, size in enumerate(["32K", "1024K", "96M", "odd"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert last_level_cache_bytes(tmp_path) == 96 * 2**20


def test_this_machine():
    assert f"{cores()} cores" in host_key() and "jax" in host_key()
    assert "\n" not in host_key()
    assert memory_bytes() > 2**28


def test_what_the_machine_has_left(tmp_path: Path):
    (tmp_path / "meminfo").write_text("MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    4000 kB\n")
    assert free_memory_bytes(tmp_path, tmp_path) == 4000 * 1024
    assert free_memory_bytes(tmp_path / "none", tmp_path) == memory_bytes()


def test_a_containers_limit_counts(tmp_path: Path):
    for name, content in (("max", "1000\n"), ("current", "700\n"), ("stat", "anon 400\ninactive_file 200\nactive_file 100\n")):
        (tmp_path / f"memory.{name}").write_text(content)
    assert free_memory_bytes(tmp_path, tmp_path) == 500
    (tmp_path / "meminfo").write_text("MemAvailable:    0 kB\n")
    assert free_memory_bytes(tmp_path, tmp_path) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory_bytes(tmp_path / "none", tmp_path) == memory_bytes()
