"""Which jaxserve this is."""

from __future__ import annotations

import functools
import importlib.metadata
import subprocess
import tomllib
from pathlib import Path

CLONE = Path(__file__).resolve().parent.parent


@functools.cache
def version(clone: Path = CLONE) -> str:
    """Of the installed package, such as 0.1.0; run from a clone with its commit, such as "0.1.0 at commit 1a2b3c4", and ", changed" where
    tracked files differ from it.

    Args:
      clone: where a clone would be.
    """
    number = _number(clone)
    if not (clone / ".git").exists():
        return number
    commit = _git(clone, "rev-parse", "--short", "HEAD")
    if not commit:
        return number
    changed = ", changed" if _git(clone, "status", "--porcelain", "--untracked-files=no") else ""
    return f"{number} at commit {commit}{changed}"


def _number(clone: Path) -> str:
    """That of the clone, for an installed one may be another; without it the installed one's."""
    try:
        return str(tomllib.loads((clone / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError):
        pass
    try:
        return importlib.metadata.version("jaxserve")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _git(clone: Path, *arguments: str) -> str:
    """What git says; nothing where there is none, or where it refuses."""
    try:
        found = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
