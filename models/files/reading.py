"""Files that a user names: read to a limit, whole or line by line, or written. What is wrong with one is a single line for its user."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from models.errors import UserError

LARGEST = 256 << 20  # B of a file that is read whole
LONGEST = 64 << 20  # B of a line
WAIT = 10.0  # s that a named pipe may wait for somebody who writes to it


@contextlib.contextmanager
def opened(path: str | Path, *, name: str = "", fix: str = "give a file that can be read") -> Iterator[BinaryIO]:
    """A file, to be read as bytes; what goes wrong while it is read counts too.

    Args:
      name: what errors call it; the path by default.
      fix: the last part of the line: what to do about it.

    Raises:
      UserError: it is not there, a folder, may not be read, fails while it is read, or is a named pipe to which nobody writes.
    """
    name = name or shown(path)
    try:
        with _open(path) as file:
            yield file
    except FileNotFoundError:
        why = "no such file"
    except IsADirectoryError:
        why = "this is a folder"
    except _NobodyWritesError:
        why = f"a pipe to which nobody has written for {WAIT:g} s"
    except OSError as error:
        why = f"cannot be read ({error.strerror or error})"
    except ValueError as error:
        if not isinstance(error, UserError) and "\0" in str(path):  # open() says "embedded null byte"
            raise UserError(f"{shown(path)} is no name of a file, for it has a NUL character; {fix}") from None
        raise
    else:
        return
    raise UserError(f"{name}: {why}; {fix}") from None


def read_bytes(path: str | Path, *, name: str = "", fix: str = "give a file that can be read", most: int = LARGEST) -> bytes:
    """All of a file. Raises UserError as `opened` does, and where it holds more than `most` bytes."""
    with opened(path, name=name, fix=fix) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"{name or shown(path)}: it holds more than {most >> 20} MiB, the most that is read; {fix}")
    return content


def read_text(path: str | Path, *, name: str = "", fix: str = "save it as UTF-8", most: int = LARGEST) -> str:
    """All of a UTF-8 file, without the byte order mark with which some editors begin one. Raises UserError as `read_bytes` does."""
    return decoded(read_bytes(path, name=name, fix=fix, most=most), name=name or shown(path), fix=fix)


def decoded(content: bytes, *, name: str, fix: str = "save it as UTF-8") -> str:
    """Bytes of `name` as text. Raises UserError with the place of the first byte that is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = error.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        raise UserError(f"{name}: byte {place} is not UTF-8; {fix}") from None


def read_lines(
    path: str | Path, *, name: str = "", fix: str = "give a file that can be read", most: int = LONGEST
) -> Iterator[tuple[int, bytes]]:
    """(number from 1, bytes with the line feed) of each line. Raises UserError as `opened` does, and at one of more than `most` bytes."""
    with opened(path, name=name, fix=fix) as file:
        number = 0
        while line := file.readline(most + 1):
            number += 1
            if len(line) > most:
                raise UserError(
                    f"{name or shown(path)}, line {number}: it has more than {most >> 20} MiB, the most that is read; {fix}"
                )
            yield number, line


def check_new(path: str | Path, *, name: str, such: str = "") -> None:
    """Whether a file could be written there, asked before the work that it is to keep.

    Args:
      name: what errors call it, such as the option's name and value.
      such: a name for it, where a folder is given.

    Raises:
      UserError: it is a folder, there is none for it, or it has no name that a file could have.
    """
    if "\0" in str(path):
        raise UserError(f"{name.split()[0]} {shown(path)} is no name of a file, for it has a NUL character; write elsewhere")
    if os.path.isdir(path):  # which, unlike Path.is_dir, takes any name
        raise UserError(f"{name} is a folder; give a file in it" + (f", such as {Path(path) / such}" if such else ""))
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UserError(f"{name}: there is no folder {shown(folder)}; make it, or write elsewhere")
    try:
        os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror}; write elsewhere") from None


def write_file(path: str | Path, content: str | bytes, *, name: str, fix: str = "write elsewhere") -> None:
    """Write a file, text as UTF-8.

    Raises:
      UserError: it can't be written, or not to its end; the line begins with `name`.
    """
    data = (
        content if isinstance(content, bytes) else content.encode(errors="backslashreplace")
    )  # what is no character stays readable
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror}; {fix}") from None
    except ValueError:
        raise UserError(f"{name} cannot be written: it has a NUL character; {fix}") from None


def shown(path: str | Path) -> str:
    """A path as it stands in an error: in one line, and not without end."""
    text = str(path) if str(path).isprintable() else repr(str(path))
    return text if len(text) <= 250 else f"{text[:120]}...{text[-120:]}"


class _NobodyWritesError(Exception):
    """Nobody has opened the other end of a pipe."""


def _open(path: str | Path) -> BinaryIO:
    """Opens it; a named pipe within a time, for that takes until somebody opens its other end."""
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return open(path, "rb")
    found: list[BinaryIO | OSError] = []

    def wait() -> None:
        try:
            found.append(open(path, "rb"))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(WAIT)
    alone = thread.is_alive()
    if alone:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))  # so that the thread's call returns
        thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    if alone:
        found[0].close()
        raise _NobodyWritesError
    return found[0]
