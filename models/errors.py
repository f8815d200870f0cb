"""The one exception for input that a user can mend, and the check of whole numbers that raises it."""

from __future__ import annotations

MOST = 2**31 - 1  # of anything that is counted: what an int32 of a program can hold


class UserError(ValueError):
    """Bad input. The message is one line that names the value, the limit and the fix; commands print it and exit with code 2."""


def check_count(name: str, value: object, *, least: int = 1, most: int = MOST, why: str = "") -> None:
    """Raise UserError unless `value` is a whole number from `least` to `most`. why: what sets the largest, to be put in brackets."""
    if type(value) is not int or value < least:
        raise UserError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    if value > most:
        shown = f"{value}" if value < 10**30 else f"a number of {len(str(value))} digits"
        raise UserError(f"{name} is {shown}; it must be at most {most}{f' ({why})' if why else ''}")
