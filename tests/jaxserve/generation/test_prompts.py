"""Built-in prompts, and files of every shape that a user may hand in."""

import json
import os

import pytest

from jaxserve.generation.prompts import builtin_prompts, read_prompts
from models.errors import UserError


@pytest.fixture
def write(tmp_path):
    def write(content, name="prompts.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_builtin():
    prompts = builtin_prompts()
    assert len(prompts) == len(set(prompts)) == 64
    assert all(8 <= len(prompt.split()) <= 40 for prompt in prompts)
    assert all(prompt == prompt.strip() for prompt in prompts)


def test_text(write):
    assert read_prompts(write("one\n\n  two words \r\nthree")) == ("one", "two words", "three")


def test_byte_order_mark(write):
    assert read_prompts(write(b"\xef\xbb\xbfone\n")) == ("one",)


def test_jsonl(write):
    rows = [{"prompt": "first\nsecond line "}, {"prompt": "zwei\u2028drei", "id": 4}]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n"
    assert read_prompts(write(text, "p.JSONL")) == ("first\nsecond line ", "zwei\u2028drei")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", "", "the file holds no prompt"),
        ("p.txt", "\n  \n", "the file holds no prompt"),
        ("p.jsonl", "\n", "the file holds no prompt"),
        ("p.txt", b"good\n\xff\n", "byte 5 is not UTF-8; give a UTF-8 text file"),
        ("p.jsonl", '{"prompt": "a"}\n\n{"prompt": \n', r"p\.jsonl, line 3: not valid JSON \(Expecting value at"),
        ("p.jsonl", "[" * 100_000, "line 1: not valid JSON"),
        (
            "p.jsonl",
            '{"prompt": "a\\ud83db"}\n',
            r"p\.jsonl, line 1: not valid JSON \(it holds half of a character, U\+D83D\); write",
        ),
        ("p.jsonl", '"prompt"\n', "line 1: no prompt; write an object such as"),
        ("p.jsonl", '{"text": "a"}\n', "line 1: no prompt"),
        ("p.jsonl", '{"prompt": 3}\n', "line 1: no prompt"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": " "}\n', "line 2: the prompt is empty"),
    ],
)
def test_bad_content(write, name, content, message):
    with pytest.raises(UserError, match=message) as caught:
        read_prompts(write(content, name))
    assert "\n" not in str(caught.value)


def test_missing_and_folder(tmp_path):
    with pytest.raises(UserError, match="no such file; give a UTF-8 text file"):
        read_prompts(tmp_path / "none.txt")
    with pytest.raises(UserError, match="this is a folder"):
        read_prompts(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_unreadable(write):
    path = write("a")
    path.chmod(0)
    with pytest.raises(UserError, match="cannot be read"):
        read_prompts(path)
