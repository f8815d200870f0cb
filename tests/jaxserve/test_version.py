"""Which jaxserve this is. Oracle: clones that git makes here."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jaxserve.version import version


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_clone_says_its_commit(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "jaxserve"\nversion = "7.8.9"\n')
    git(tmp_path, "init")
    version.cache_clear()
    assert version(tmp_path) == "7.8.9", "there is no commit yet"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "x")
    version.cache_clear()
    commit = git(tmp_path, "rev-parse", "--short", "HEAD")
    (tmp_path / "notes").write_text("not tracked")
    assert version(tmp_path) == f"7.8.9 at commit {commit}"
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write("# more\n")
    version.cache_clear()
    assert version(tmp_path) == f"7.8.9 at commit {commit}, changed"


def test_elsewhere_it_is_what_is_installed(tmp_path: Path):
    assert version(tmp_path)[0].isdigit() or version(tmp_path) == "not installed"


def test_this_one():
    assert version()[0].isdigit()
