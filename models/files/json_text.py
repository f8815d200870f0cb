"""JSON that a user gives, of whatever make: a value that is safe to use, or one line that says what is wrong."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files.reading import read_bytes, shown

LARGEST = 64 << 20  # B of a JSON file
DEEPEST = 100  # objects and lists within each other
DIGITS = 300  # of a whole number: more is no float
MOST = 4_000_000  # objects and lists: a small one takes 64 B and more

_LONG = b"0" * (DIGITS + 1)
_ZEROS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))  # any digit is 0, anything else a space
_DEEP = f"objects and lists are nested more than {DEEPEST} deep"
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def parse_json(text: str | bytes, *, strict: bool = True) -> Any:
    """The value of a JSON text. The caller names the file.

    A value that is returned is nested at most `DEEPEST` times, so it may be walked, printed and compared; its whole numbers fit a float;
    its strings can be written as UTF-8.

    Args:
      strict: refuse NaN, Infinity, numbers beyond a float and keys that stand twice in an object, as in every format of our own. Files
        of others are read as Python's json does: with NaN and Infinity, and the last of equal keys counts.

    Raises:
      UserError: "not valid JSON (why)", with the place where that is known.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _unfit(f"byte {error.start} is not UTF-8") from None
    if not text.strip():
        raise _unfit("it is empty")
    if (opening := text.count("[") + text.count("{")) > MOST:
        raise _unfit(f"it holds {opening:,} objects and lists, and {MOST:,} are the most")
    decoder = _STRICT if strict else _LENIENT
    if _LONG in text.encode(errors="replace").translate(_ZEROS):  # a number or a part of a string
        decoder = json.JSONDecoder(parse_int=_whole, **(_HOOKS if strict else {}))
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        several = "\n" in text.rstrip()  # else the caller counts lines
        place = f"line {error.lineno}, character {error.colno}" if several else f"character {error.pos + 1}"
        raise _unfit(f"{error.msg} at {place}") from None
    except RecursionError:
        raise _unfit(_DEEP) from None
    if opening > DEEPEST and isinstance(value, (list, dict)) and _deeper(value):
        raise _unfit(_DEEP)
    if not (text.isascii() and "\\u" not in text) and _HALF.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ord(error.object[error.start])
            raise _unfit(f"it holds half of a character, U+{half:04X}") from None
    return value


def read_json(
    path: str | Path, *, name: str = "", fix: str = "give a JSON file", strict: bool = True, most: int = LARGEST
) -> Any:
    """The value of a JSON file, see `parse_json`.

    Args:
      name: what errors call the file; the path by default.
      fix: the last part of the line: what to do about it.
      most: B of the file.

    Raises:
      UserError: the file can't be read, is too large, or is no JSON; one line with name, reason and fix.
    """
    name = name or shown(path)
    content = read_bytes(path, name=name, fix=fix, most=most)
    try:
        return parse_json(content, strict=strict)
    except UserError as error:
        raise UserError(f"{name}: {error}; {fix}") from None


def read_object(
    path: str | Path, *, name: str = "", fix: str = "give a JSON file", strict: bool = True, most: int = LARGEST
) -> dict[str, Any]:
    """The object of a JSON file. Raises UserError as `read_json` does, and where it holds something else."""
    value = read_json(path, name=name, fix=fix, strict=strict, most=most)
    if not isinstance(value, dict):
        raise UserError(f"{name or shown(path)}: it holds {kind_of(value)}, not an object; {fix}")
    return value


def kind_of(value: Any) -> str:
    """What JSON calls a value."""
    if value is None:
        return "null"
    kinds: Mapping[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return kinds.get(type(value), "an object")


def _deeper(value: list[Any] | dict[str, Any]) -> bool:
    """Whether objects and lists lie within each other more than `DEEPEST` times."""
    level = [value]
    for _ in range(DEEPEST):
        inside = itertools.chain.from_iterable(each.values() if type(each) is dict else each for each in level)
        level = [each for each in inside if type(each) is list or type(each) is dict]
        if not level:
            return False
    return True


def _unfit(why: str) -> UserError:
    return UserError(f"not valid JSON ({why})")


def _no_number(text: str) -> float:
    raise _unfit(f"{text} is no number")


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise _unfit(f"{text[:40]} is larger than a number can be")
    return value


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise _unfit(f"a number has {len(text):,} digits, and {DIGITS} are the most")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        again = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise _unfit(f"the key {again[:60]!r} stands twice in one object")
    return found


_HOOKS: dict[str, Any] = {"parse_constant": _no_number, "parse_float": _finite, "object_pairs_hook": _once}
_STRICT, _LENIENT = json.JSONDecoder(**_HOOKS), json.JSONDecoder()  # made once: that takes longer than a line
