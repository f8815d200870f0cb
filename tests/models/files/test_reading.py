"""Files that a user gives. Oracle: what was written, and for each kind of file that can't be read the line that names it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from models.errors import UserError
from models.files import reading as files
from models.files.reading import decoded, read_bytes, read_lines, read_text


def test_what_was_written(tmp_path: Path):
    file = tmp_path / "a.txt"
    file.write_bytes("é\r\nb\x85c\n\nd".encode())
    assert read_bytes(file) == file.read_bytes()
    assert read_text(file) == "é\r\nb\x85c\n\nd"
    assert list(read_lines(file)) == [(1, "é\r\n".encode()), (2, "b\x85c\n".encode()), (3, b"\n"), (4, b"d")]
    file.write_bytes(b"\xef\xbb\xbfabc")
    assert read_text(str(file)) == "abc"
    assert list(read_lines(os.devnull)) == []


def test_only_so_much_is_read(tmp_path: Path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"a" * 2**20)
    assert len(read_bytes(file, most=2**20)) == 2**20
    with file.open("r+b") as sparse:
        sparse.truncate(2**33)  # 8 GB that take no room on the disk and would take all memory
    with pytest.raises(UserError, match=r"a\.txt: it holds more than 1 MiB, the most that is read; give less"):
        read_bytes(file, most=2**20, fix="give less")
    with pytest.raises(UserError, match=r"^it, line 1: it has more than 1 MiB, the most that is read; give"):
        list(read_lines(file, name="it", most=2**20))
    with pytest.raises(UserError, match="/dev/zero: it holds more than 1 MiB"):
        read_bytes("/dev/zero", most=2**20)


def closed(path: Path) -> Path:
    path.write_text("a")
    path.chmod(0)
    return path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder / "none", r"none: no such file; fix it"),
        (lambda folder: folder, r": this is a folder; fix it"),
        (lambda folder: folder / ("x" * 5000), r"xxx\.\.\.xxx.*: cannot be read \(File name too long\); fix it"),
        (lambda folder: str(folder) + "/a\0b", r"a\\x00b' is no name of a file, for it has a NUL character; fix it"),
        (lambda folder: folder / "\udcff", r"\\udcff': no such file; fix it"),
        (lambda folder: folder / "a\nb", r"a\\nb': no such file; fix it"),
        pytest.param(
            lambda folder: closed(folder / "a"),
            r"a: cannot be read \(Permission denied\); fix it",
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything"),
        ),
    ],
    ids=["none", "folder", "long", "NUL", "no UTF-8", "two lines", "closed"],
)
def test_no_file(make: Callable[[Path], str | Path], says: str, tmp_path: Path):
    path = make(tmp_path)
    for read in (read_bytes, read_text, lambda path, fix: list(read_lines(path, fix=fix))):
        with pytest.raises(UserError, match=says) as caught:
            read(path, fix="fix it")
        assert len(str(caught.value)) < 350 and "\n" not in str(caught.value)


def test_a_fault_while_it_is_read():
    """/proc/self/mem may be opened, and its first byte may not be read."""
    with pytest.raises(UserError, match=r"/proc/self/mem: cannot be read \(Input/output error\); give"):
        read_bytes("/proc/self/mem")


def test_an_error_of_the_reader_passes():
    with pytest.raises(ValueError, match="mine"), files.opened(os.devnull):
        raise ValueError("mine")
    with pytest.raises(UserError, match=r"^mine$"), files.opened(os.devnull):
        raise UserError("mine")


def test_a_place_that_is_not_utf_8():
    assert decoded(b"a\xc3\xa9", name="x") == "aé"
    with pytest.raises(UserError, match=r"^x: byte 1 is not UTF-8; save it as UTF-8$"):
        decoded(b"a\xe9", name="x")


def test_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As `<(command)` gives one; and one to which nobody writes is no reason to wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"ab\nc"))
    writer.start()
    assert list(read_lines(pipe)) == [(1, b"ab\n"), (2, b"c")]
    writer.join()
    monkeypatch.setattr(files, "WAIT", 0.05)
    before = threading.active_count()
    with pytest.raises(UserError, match=r"pipe: a pipe to which nobody has written for 0\.05 s; give"):
        read_bytes(pipe)
    assert threading.active_count() == before

    out, into = os.pipe()
    os.write(into, b"abc")
    os.close(into)  # whoever wrote has gone, and what was written is there
    assert read_bytes(f"/dev/fd/{out}") == b"abc"
    os.close(out)
