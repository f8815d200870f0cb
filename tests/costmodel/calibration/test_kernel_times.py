"""Tables of kernel times. Oracle: what stands in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.calibration.kernel_times import read_times
from models.errors import UserError


def write(path: Path, text: str) -> Path:
    file = path / "times.csv"
    file.write_text(text)
    return file


def test_columns_are_found_by_name(tmp_path: Path):
    columns, seconds = read_times(write(tmp_path, "ms,more,n,m\n2.5,9,4,1\n0.5,9,8,2\n"), ("m", "n"))
    assert {name: column.tolist() for name, column in columns.items()} == {"m": [1, 2], "n": [4, 8]}
    assert seconds.tolist() == pytest.approx([2.5e-3, 0.5e-3])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no column m"),
        ("m,n\n1,2\n", "there is no column ms"),
        ("m,n,ms\n1,2,3\n1,x,3\n", "line 3 is '1,x,3'"),
        ("m,n,ms\n1,2\n", "line 2 is '1,2'"),
        ("m,n,ms\n1,2,0.1\n1,2,0\n", "line 3 has a figure that is not above 0"),
        ("m,n,ms\n1,2,nan\n", "line 2 has a figure"),
        ("m,n,ms\n", "there are no times"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, says: str):
    with pytest.raises(UserError, match=says):
        read_times(write(tmp_path, text), ("m", "n"))


def test_no_file(tmp_path: Path):
    with pytest.raises(UserError, match=r"none\.csv: no such file"):
        read_times(tmp_path / "none.csv", ("m",))
