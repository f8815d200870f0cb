"""A JSON file that one command writes with --out and another one reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from models.errors import UserError
from models.files.json_text import read_json
from models.files.reading import check_new, write_file

T = TypeVar("T")


def check_out(out: Path | None, such: str) -> None:
    """Whether a file could be written there, asked before the work that it is to keep.

    Args:
      out: None writes nothing.
      such: a name for it, where a folder is given.

    Raises:
      UserError: it is a folder, there is none for it, or no file could have that name.
    """
    if out is not None:
        check_new(out, name=f"--out {out}", such=such)


def write_out(out: Path | None, given: Any) -> None:
    """Plain data, for `read_out`; None writes nothing.

    Raises:
      UserError: the file can't be written.
    """
    if out is not None:
        write_file(out, json.dumps(given, indent=1, allow_nan=False) + "\n", name=f"--out {out}")


def read_out(file: Path, command: str, read: Callable[[Any], T]) -> T:
    """What the module `command` wrote.

    Args:
      read: from plain data; raises UserError for what it can't be.

    Raises:
      UserError: the file is missing, can't be read, or holds something else.
    """
    given = read_json(file, fix=f"give a file that {command} --out wrote")
    try:
        return read(given)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
