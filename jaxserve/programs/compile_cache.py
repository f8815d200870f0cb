"""The folder in which compiled programs are kept for the next start. Plain Python: what an entry holds is a matter of `executable.py`.

Every entry carries a digest of its name and content, so one that is cut off, of another program or of nobody is never used: it is
compiled again and replaced. Entries are written beside and moved into place, so processes may share a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
import uuid
from pathlib import Path

from models.errors import UserError

LIMIT = 2**30  # B of a folder's entries: of more, those go that were not used for longest
ABANDONED = 3600  # s after which a file that was never moved into place is nobody's
Choice = str | Path | bool | None  # a folder; None or True for the user's own; False for none


_MAGIC = b"jaxserve program 1\n"
_DIGEST = hashlib.sha256().digest_size
_SUFFIX, _UNFINISHED = ".program", ".program-unfinished"
_log = logging.getLogger("jaxserve")


class CompileCache:
    """Compiled programs by key, in a folder. Threads and processes may use it at once.

    Whatever is wrong with the folder or an entry costs a compilation and no more; `tell` says so.

    Args:
      folder: it is made when the first entry is written.
      limit: B of all entries.
    """

    def __init__(self, folder: Path, limit: int = LIMIT):
        self.folder, self._limit = folder, limit
        self._broken: dict[str, str] = {}
        self._refused, self._told, self._wrote = "", False, False

    @classmethod
    def of(cls, choice: Choice, name: str) -> CompileCache | None:
        """What the option `name` says; a folder is made, the user's own not before something is to be kept.

        Raises:
          UserError: a folder that was asked for can't be made.
        """
        if choice is False:
            return None
        if choice is None or choice is True:
            from costmodel.hardware.host import cache_folder  # here, so that settings can be checked without JAX

            try:
                return cls(cache_folder() / "programs")
            except RuntimeError:  # nobody's home is known
                return None
        folder = Path(choice)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unfit(folder, name, error) from None
        return cls(folder)

    def get(self, key: str) -> bytes | None:
        """The content of an entry; None where there is none, or none that is whole."""
        try:
            whole = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.broken(key, f"{error.strerror}")
            return None
        digest, content = whole[len(_MAGIC) : len(_MAGIC) + _DIGEST], whole[len(_MAGIC) + _DIGEST :]
        if not whole.startswith(_MAGIC) or digest != _digest(key, content):
            self.broken(key, "it is cut off or was changed")
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(key))  # it was used now
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep an entry, in place of any other of this key."""
        if self._refused:
            return
        path = self._path(key)
        beside = path.with_suffix(f".{uuid.uuid4().hex}{_UNFINISHED}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(_MAGIC + _digest(key, content) + content)
            os.replace(beside, path)
            self._wrote = True
        except OSError as error:
            self.refused(error.strerror or str(error))
            with contextlib.suppress(OSError):
                beside.unlink()

    def broken(self, key: str, why: str) -> None:
        """An entry can't be used."""
        self._broken[key] = why

    def refused(self, why: str) -> None:
        """Nothing more can be kept."""
        self._refused = why

    def tell(self) -> None:
        """Say in one line, once, what was wrong, and keep the folder within its limit. To be called when all programs are ready."""
        if self._wrote:
            self._trim()
        lines = []
        if self._broken:
            count, why = len(self._broken), next(iter(self._broken.values()))
            them = "1 kept program" if count == 1 else f"{count} kept programs"
            lines.append(f"{them} in {self.folder} could not be used ({why}) and had to be compiled again")
        if self._refused:
            lines.append(
                f"compiled programs can't be kept in {self.folder} ({self._refused}); the next start compiles them again"
            )
        if lines and not self._told:
            self._told = True
            _log.warning("%s", "; ".join(lines))

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _trim(self) -> None:
        """Remove what was abandoned, and the entries unused for longest while all of them are too large. Others may do so too."""
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"*{_UNFINISHED}"):
                if path.stat().st_mtime < time.time() - ABANDONED:
                    path.unlink(missing_ok=True)
            found = [(path.stat(), path) for path in self.folder.glob(f"*{_SUFFIX}")]
            size = sum(stat.st_size for stat, _ in found)
            for stat, path in sorted(found, key=lambda each: each[0].st_mtime_ns):
                if size <= self._limit:
                    break
                path.unlink(missing_ok=True)
                size -= stat.st_size


def check_cache(choice: Choice, name: str) -> None:
    """Whether compiled programs could be kept there. Nothing is made.

    A folder that is there and can't be written to will do: its programs may be used.

    Raises:
      UserError: under the option's `name`; it is no folder, something else lies there or above it, or it could not be made.
    """
    if choice is None or isinstance(choice, bool):
        return
    if not isinstance(choice, (str, Path)) or not str(choice) or "\0" in str(choice):
        raise UserError(f"{name} is {choice!r}; give a folder, or False to keep no compiled programs")
    folder = Path(choice)
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:  # a name that is too long, say
        raise _unfit(folder, name, error) from None
    above = "" if there == folder else f", because of {there}"
    if not there.is_dir():
        raise UserError(f"{name} {folder} is not a folder{above}; give one, or a name that is not taken")
    if there != folder and not os.access(there, os.W_OK):
        raise UserError(f"{name} {folder} cannot be written to{above}; give a folder of your own")


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + content).digest()


def _unfit(folder: Path, name: str, error: OSError) -> UserError:
    return UserError(f"{name} {folder} can't be made: {error.strerror}; give a folder that can be")
