"""Recorded traces of requests: Azure's CSV and Mooncake's JSONL, read line by line.

* Azure (AzurePublicDataset, 2023 and 2024): TIMESTAMP, ContextTokens, GeneratedTokens; a timestamp is a date and time.
* Mooncake (FAST'25): an object a line with timestamp (ms), input_length, output_length and hash_ids, one id for each block of 512 prompt
  tokens. Equal ids are equal beginnings, so prompts are made up of one run of tokens for each id.
"""

from __future__ import annotations

import csv
import datetime
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

from jaxserve.scheduling.request import Request
from models.errors import UserError
from models.files import reading as files
from models.files.json_text import parse_json

BLOCK = 512  # tokens of a Mooncake block
LONGEST = 10_000_000  # tokens of a prompt or an answer: no model takes more
SCALE = 1e9  # of times and lengths, and 1 / SCALE
_GIVE = "give an Azure CSV or a Mooncake JSONL"
_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class Entry(NamedTuple):
    """One line of a trace.

    Attributes:
      arrival: s after the first line's.
      prompt, output: tokens, as recorded. Some traces know answers of no token.
      blocks: ids of the blocks of the prompt, where the trace has them.
    """

    arrival: float
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()


class Blocks(Sequence[int]):
    """A prompt of equal tokens where blocks are equal: block b is the tokens b size, b size + 1, ... Nothing is stored but ids."""

    __slots__ = ("_ids", "_length", "_size")

    def __init__(self, ids: tuple[int, ...], length: int, size: int):
        self._ids, self._length, self._size = ids, length, size

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        if isinstance(at, slice):
            return tuple(map(self._token, range(*at.indices(self._length))))
        if not -self._length <= at < self._length:
            raise IndexError(f"token {at} of a prompt of {self._length}")
        return self._token(at % self._length)

    def __iter__(self) -> Iterator[int]:
        return map(self._token, range(self._length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(int.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # it may equal a tuple

    def _token(self, at: int) -> int:
        return self._ids[at // self._size] * self._size + at % self._size


def read_trace(path: Path) -> Iterator[Entry]:
    """The requests of a trace file; see `read_lines`."""
    return (entry for _, entry in read_lines(path))


def read_lines(path: Path) -> Iterator[tuple[int, Entry]]:
    """(line number, request) of a trace file; which of the two kinds it is shows in its first character.

    Raises:
      UserError: the file can't be read or holds no request; a line is malformed or empty, which is named by its number, or goes back in
        time.
    """
    filled = _filled(path, _text(path))
    first = next(filled, "")
    filled = itertools.chain([first], filled)
    lines = _mooncake(filled) if first.startswith("{") else _azure(path, filled)
    start = before = math.nan
    for number, entry in _named(path, lines):
        if math.isnan(start):
            start = before = entry.arrival
        if entry.arrival < before:
            raise UserError(
                f"{path.name} line {number}: it is {before - entry.arrival:g} s before the line above; sort by time"
            )
        before = entry.arrival
        yield number, entry._replace(arrival=entry.arrival - start)
    if math.isnan(start):
        raise UserError(f"{path.name} holds no request; give an Azure CSV or a Mooncake JSONL with at least one")


def count_lines(path: Path) -> int:
    """Lines of a trace file: about as many requests. Raises UserError where it can't be read."""
    return sum(1 for _ in files.read_lines(path, name=f"trace {path}", fix=_GIVE))


def requests(entries: Iterable[Entry], *, time: float = 1.0, length: float = 1.0, first: int = 0) -> Iterator[Request]:
    """The requests of a trace, as the scheduler sees them.

    Every prompt without blocks is of tokens that no other has; with blocks each full block stays one and shrinks alike, so that what is
    shared stays shared. What would be no token is one: a prompt holds at least one and, to be of any use, draws at least one.

    Args:
      time: arrivals are multiplied by it; 0.5 is twice the rate.
      length: prompts and answers are multiplied by it.
      first: id of the first request.

    Raises:
      UserError: a scale that is not above 0, or that leaves nothing of a block.
    """
    for name, scale in (("time", time), ("length", length)):
        if not 0 < scale:
            raise UserError(f"the {name} scale is {scale}; it must be above 0")
        if not 1 / SCALE <= scale <= SCALE:
            raise UserError(f"the {name} scale is {scale}; it must lie from {1 / SCALE:g} to {SCALE:g}")
    size = round(BLOCK * length)
    if not size:
        raise UserError(
            f"a length scale of {length} leaves nothing of a block of {BLOCK} tokens; give at least {1 / BLOCK:.4f}"
        )
    used = 0
    for id, entry in zip(itertools.count(first), entries):
        if (longest := max(entry.prompt, entry.output) * length) > LONGEST:
            raise UserError(
                f"a length scale of {length} makes {longest:.4g} tokens of a request; {LONGEST} are the most, so lower it"
            )
        prompt: Sequence[int]
        if entry.blocks:
            full, rest = divmod(entry.prompt, BLOCK)
            prompt = Blocks(entry.blocks, max(full * size + round(rest * length), 1), size)
        else:
            prompt = range(used, used + max(round(entry.prompt * length), 1))
            used = prompt.stop
        yield Request(id, prompt, max(round(entry.output * length), 1), arrival=entry.arrival * time)


def _text(path: Path) -> Iterator[str]:
    for number, line in files.read_lines(path, name=f"trace {path}", fix=_GIVE):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise UserError(f"trace {path} is no text, in line {number}; {_GIVE}") from None


def _filled(path: Path, file: Iterable[str]) -> Iterator[str]:
    """The lines of a file. Empty ones may end it; between others a request may have been lost, and only its user knows."""
    empty = 0
    for number, line in enumerate(file, start=1):
        if not line.strip():
            empty = empty or number
        elif empty:
            raise UserError(f"{path.name} line {empty}: it is empty, with more lines below; delete it if no request is missing")
        else:
            yield line


def _named(path: Path, lines: Iterator[tuple[int, Callable[[], Entry]]]) -> Iterator[tuple[int, Entry]]:
    """(line number, entry); what a line can't be is said with its number."""
    for number, parse in lines:
        try:
            yield number, parse()
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(
                f"{path.name} line {number}: {what}; give lines as Azure's CSV or Mooncake's JSONL has them"
            ) from None


def _azure(path: Path, file: Iterable[str]) -> Iterator[tuple[int, Callable[[], Entry]]]:
    table = csv.DictReader(file)
    if any(column not in (table.fieldnames or ()) for column in _COLUMNS):
        begins = ",".join(table.fieldnames or ())[:60]
        found = f"it begins with {begins!r}, which is of no kind that is known" if begins else "it is empty"
        raise UserError(f"{path.name} line 1: {found}; Azure's begins with {','.join(_COLUMNS)}")
    try:
        for row in table:
            yield table.line_num, lambda row=row: _azure_entry(row)  # type: ignore[misc]
    except csv.Error as error:
        raise UserError(f"{path.name} line {table.line_num}: it is no CSV ({error}); {_GIVE}") from None


def _azure_entry(row: Mapping[str, Any]) -> Entry:
    stamp, prompt, output = (row[column] or "" for column in _COLUMNS)
    whole, _, rest = stamp.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]  # seven of them, one more than datetime keeps
    at = datetime.datetime.fromisoformat(whole + rest[len(digits) :])
    zone = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
    return Entry(
        zone.timestamp() + float(f"0.{digits or 0}"), _count("ContextTokens", prompt, 1), _count("GeneratedTokens", output, 0)
    )


def _mooncake(file: Iterable[str]) -> Iterator[tuple[int, Callable[[], Entry]]]:
    for number, line in enumerate(file, start=1):
        yield number, lambda line=line: _mooncake_entry(line)  # type: ignore[misc]


def _mooncake_entry(line: str) -> Entry:
    given = parse_json(line)
    if not isinstance(given, dict):
        raise ValueError(f"it holds a JSON {type(given).__name__}, not an object")
    at, ids = given["timestamp"], given["hash_ids"]
    if isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at):
        raise ValueError(f"timestamp is {at!r}, not milliseconds")
    prompt, output = _count("input_length", given["input_length"], 1), _count("output_length", given["output_length"], 0)
    if not isinstance(ids, list) or not all(type(id) is int and id >= 0 for id in ids):
        raise ValueError("hash_ids are no list of whole numbers")
    if len(ids) != -(-prompt // BLOCK):
        raise ValueError(f"{len(ids)} hash_ids for {prompt} tokens in blocks of {BLOCK}")
    return Entry(at / 1e3, prompt, output, tuple(ids))


def _count(name: str, given: Any, least: int) -> int:
    try:
        count = int(given) if isinstance(given, str | int) and not isinstance(given, bool) else None
    except ValueError:
        count = None
    if count is None or not least <= count <= LONGEST:
        raise ValueError(f"{name} is {repr(given)[:40]}, not a number from {least} to {LONGEST}")
    return count
