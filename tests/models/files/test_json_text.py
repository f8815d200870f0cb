"""JSON that a user gives. Oracles: Python's own reader where it is right, and what must not come through, made by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from models.files import json_text
from models.files.json_text import DEEPEST, DIGITS, parse_json, read_json, read_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(VALUES, st.booleans(), st.booleans())
def test_what_is_written_is_read(value: Any, strict: bool, escaped: bool):
    text = json.dumps(value, ensure_ascii=escaped)
    assert parse_json(text, strict=strict) == parse_json(text.encode(), strict=strict) == value


@given(st.text(alphabet='[]{}",:\\ 019.eE-+ntfNIu\ud83d\ude00é', max_size=60) | st.binary(max_size=60), st.booleans())
def test_any_text_is_a_value_or_one_line(text: str | bytes, strict: bool):
    """Where Python's reader finds a value and nothing forbids it, it is that one."""
    try:
        found = parse_json(text, strict=strict)
    except UserError as error:
        assert "\n" not in str(error) and str(error).startswith("not valid JSON (")
    else:
        content = text if isinstance(text, str) else text.decode("utf-8-sig")
        assert json.dumps(found) == json.dumps(json.loads(content))
        json.dumps(found, ensure_ascii=False).encode()


def nested(levels: int) -> str:
    return '{"a": [' * (levels // 2) + "1" + "]}" * (levels // 2)


def test_the_deepest_is_read_and_one_more_is_not():
    assert depth(parse_json(nested(DEEPEST))) == DEEPEST
    for text in (
        nested(DEEPEST + 2),
        "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 990 + "]" * 990,
    ):
        with pytest.raises(UserError, match=rf"^not valid JSON \(.* nested more than {DEEPEST} deep\)$"):
            parse_json(text)
    flat = [[[]] * 500, "[" * 5000, {str(i): {} for i in range(300)}]
    assert parse_json(json.dumps(flat)) == flat  # many brackets, few levels


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"not valid JSON \(it is empty\)"),
        (" \n", "it is empty"),
        ("nan", r"not valid JSON \(Expecting value at character 1\)"),
        ("[1,\n2,,3]", "at line 2, character 3"),
        (b"\xff\xfe{\x00}\x00", "byte 0 is not UTF-8"),
        ('"\\ud83d"', r"it holds half of a character, U\+D83D"),
        ('{"\\uDE00": 1}', r"it holds half of a character, U\+DE00"),
        ('"\ud83d"', r"it holds half of a character, U\+D83D"),
        ("1" * (DIGITS + 1), f"a number has {DIGITS + 1} digits, and {DIGITS} are the most"),
        ("[-" + "9" * 5000 + "]", "a number has 5,001 digits"),
        ("[1] 2", "Extra data at character 5"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_no_value(text: str | bytes, says: str, strict: bool):
    with pytest.raises(UserError, match=says):
        parse_json(text, strict=strict)


@pytest.mark.parametrize(
    ("text", "says", "lenient"),
    [
        ("[NaN]", "NaN is no number", [math.nan]),
        ("-Infinity", "-Infinity is no number", -math.inf),
        ("1e999", "1e999 is larger than a number can be", math.inf),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice", {"a": 1, "b": {"c": 2}}),
    ],
)
def test_what_only_files_of_others_may_hold(text: str, says: str, lenient: Any):
    with pytest.raises(UserError, match=says):
        parse_json(text)
    assert repr(parse_json(text, strict=False)) == repr(lenient) == repr(json.loads(text))


def test_digits_in_a_text_are_no_number():
    for text in (f'"{"7" * 5000}"', "[" + "1," * 400 + f"{10**299}]"):
        assert parse_json(text) == json.loads(text)


def test_a_whole_pair_of_surrogates_is_a_character():
    assert parse_json('"\\ud83d\\ude00"') == "😀" == parse_json('"😀"')


def test_many_small_objects_are_too_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_text, "MOST", 3)
    assert parse_json("[{}, {}]") == [{}, {}]
    with pytest.raises(UserError, match="it holds 4 objects and lists, and 3 are the most"):
        parse_json("[{}, {}, []]")


def test_a_file(tmp_path: Path):
    file = tmp_path / "a.json"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"a": [1, 2.5, null]}')
    assert read_json(file) == read_object(file) == {"a": [1, 2.5, None]}
    file.write_text("[1]")
    with pytest.raises(UserError, match=r"^--slo: it holds a list, not an object; give an SLO$"):
        read_object(file, name="--slo", fix="give an SLO")
    file.write_text("{1}")
    with pytest.raises(
        UserError, match=r"a\.json: not valid JSON \(Expecting property name .* at character 2\); give a JSON file$"
    ):
        read_json(file)
    file.write_bytes(b"\xef\xbb\xbf[\xff]")
    with pytest.raises(UserError, match=r"a\.json: not valid JSON \(byte 1 is not UTF-8\); give"):
        read_json(file)
    with pytest.raises(UserError, match=r"none\.json: no such file; give"):
        read_object(tmp_path / "none.json")
    file.write_text(f'"{"a" * 2**20}"')
    with pytest.raises(UserError, match=r"a\.json: it holds more than 1 MiB, the most that is read; give"):
        read_json(file, most=2**20)
