"""The one exception for input that a user can mend, how it shows a value, and the check of whole numbers that raises it."""

from __future__ import annotations

import math
import reprlib
from typing import Any

MOST = 2**31 - 1  # of anything that is counted: what an int32 of a program can hold


class UserError(ValueError):
    """Bad input. The message is one line that names the value, the limit and the fix; commands print it and exit with code 2."""


def check_count(name: str, value: object, *, least: int = 1, most: int = MOST, why: str = "") -> None:
    """Raise UserError unless `value` is a whole number from `least` to `most`. why: what sets the largest, to be put in brackets."""
    if type(value) is not int or value < least:
        raise UserError(f"{name} is {short(value)}; it must be a whole number of at least {least}")
    if value > most:
        raise UserError(f"{name} is {short(value)}; it must be at most {most}{f' ({why})' if why else ''}")


def short(value: Any, most: int = 100) -> str:
    """A value for a message: one line of at most `most` characters and three dots, whatever it is.

    `repr` is slow for a long list, and fails for a whole number of 5,000 digits, wherever it stands.
    """
    if type(value) is int and value.bit_length() > 100:
        return f"a whole number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    show = reprlib.Repr()
    show.maxlevel, show.maxdict, show.maxlist, show.maxstring, show.maxlong, show.maxother = 2, 2, 3, most, most, most
    try:
        text = " ".join(show.repr(value).split())
    except ValueError:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}..."
