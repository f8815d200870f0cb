"""What a message says of a value. Oracles: the message by hand, and its length for values without end."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import MOST, UserError, check_count, short


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "5"),
        ("a\nb", r"'a\nb'"),
        (10**400, "a whole number of about 401 digits"),
        (-(10**5000), "a whole number of about 5001 digits"),
        ([10**5000], "a value of type list"),
    ],
    ids=["int", "text", "401 digits", "5001 digits", "5001 digits within"],
)
def test_a_value_on_one_line(value: Any, said: str):
    assert short(value) == said


LONG = ["x" * 10**6, [[0] * 10**6] * 9, {str(i): "y" * 999 for i in range(999)}, b"z" * 10**6]


@pytest.mark.parametrize("value", LONG, ids=["text", "lists", "object", "bytes"])
def test_no_value_is_shown_without_end(value: Any):
    assert len(short(value)) <= 103 and len(short(value, 40)) <= 43 and "\n" not in short(value)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "3", None, -(10**5000)], ids=map(str, range(7)))
def test_what_is_no_count(value: Any):
    with pytest.raises(UserError, match=r"^rows is .*; it must be a whole number of at least 1$"):
        check_count("rows", value)


@pytest.mark.parametrize("value", [MOST + 1, 10**5000], ids=["one more", "5001 digits"])
def test_what_is_beyond_counting(value: int):
    with pytest.raises(UserError, match=r"^rows is .*; it must be at most 2147483647 \(an int32 holds no more\)$"):
        check_count("rows", value, why="an int32 holds no more")
    check_count("rows", MOST)
