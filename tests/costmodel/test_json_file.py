"""A file that one command writes and another reads. Oracle: JSON's own grammar, and what the one line must say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.json_file import check_out, read_out, write_out
from models.errors import UserError


def numbers(given: Any) -> list[int]:
    if not isinstance(given, list):
        raise UserError("it holds no numbers")
    return given


def test_what_is_written_is_read(tmp_path: Path):
    file = tmp_path / "numbers.json"
    check_out(file, "numbers.json")
    write_out(file, [1, 2])
    assert json.loads(file.read_text()) == [1, 2] and file.read_text().endswith("\n")
    assert read_out(file, "some.command", numbers) == [1, 2]


def test_nothing_is_written_where_no_file_is_named():
    check_out(None, "numbers.json")
    write_out(None, [1])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"no such file; give a file that some\.command --out wrote$"),
        (b"[1, 2", r"not valid JSON \(.*\); give a file that some\.command --out wrote$"),
        (b"\xff\xfe", r"not valid JSON \(.*\); give"),
        (b"[" * 100_000, r"not valid JSON \(.*\); give"),  # deeper than the reader goes
        (b"{}", "it holds no numbers$"),
    ],
    ids=["missing", "cut", "no text", "deep", "other"],
)
def test_a_file_that_is_none(content: bytes | None, says: str, tmp_path: Path):
    file = tmp_path / "numbers.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=rf"numbers\.json: {says}"):
        read_out(file, "some.command", numbers)


def test_where_no_file_can_be(tmp_path: Path):
    with pytest.raises(UserError, match=r"--out .* is a folder; give a file in it, such as .*/numbers\.json$"):
        check_out(tmp_path, "numbers.json")
    with pytest.raises(UserError, match=r"--out .*: there is no folder .*/none; make it, or write elsewhere$"):
        check_out(tmp_path / "none" / "numbers.json", "numbers.json")
    with pytest.raises(UserError, match=r"--out .* cannot be written: File name too long; write elsewhere$"):
        write_out(tmp_path / ("x" * 300), [1])
