"""A JSON file that one command writes with --out and another one reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from models.errors import UserError

T = TypeVar("T")


def check_out(out: Path | None, such: str) -> None:
    """Whether a file could be written there, asked before the work that it is to keep.

    Args:
      out: None writes nothing.
      such: a name for it, where a folder is given.

    Raises:
      UserError: it is a folder, or there is none for it.
    """
    if out is None:
        return
    if os.path.isdir(out):  # which, unlike Path.is_dir, takes any name
        raise UserError(f"--out {out} is a folder; give a file in it, such as {out / such}")
    if not out.absolute().parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.absolute().parent}; make it, or write elsewhere")


def write_out(out: Path | None, given: Any) -> None:
    """Plain data, for `read_out`; None writes nothing.

    Raises:
      UserError: the file can't be written.
    """
    if out is None:
        return
    try:
        out.write_text(json.dumps(given, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}; write elsewhere") from None


def read_out(file: Path, command: str, read: Callable[[Any], T]) -> T:
    """What the module `command` wrote.

    Args:
      read: from plain data; raises UserError for what it can't be.

    Raises:
      UserError: the file is missing, can't be read, or holds something else.
    """
    give = f"give a file that {command} --out wrote"
    try:
        given = json.loads(file.read_bytes())
    except OSError as error:
        raise UserError(f"{file}: can't be read ({error.strerror}); {give}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{file}: not valid JSON; {give}") from None
    try:
        return read(given)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
