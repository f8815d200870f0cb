"""Times, rates and sizes as people write them. A figure without its unit is refused: 250 may be ms or s, and the answer depends on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from models.errors import UserError

TIMES: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
RATES: Mapping[str, float] = {"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600}
SIZES: Mapping[str, float] = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)},
}
# (least above 0, most) in the first unit of each kind: beyond, nobody waits for it or counts it.
_TIMES, _RATES, _SIZES = (1e-9, 1e9, "s"), (1e-9, 1e9, "/s"), (1.0, 1e18, "B")
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\D*)")


def seconds(text: str, what: str = "the time", *, zero: bool = False) -> float:
    """s of "250ms", "12 ms", "1.5s", "2min".

    Args:
      what: it is, for the message.
      zero: 0 makes sense.

    Raises:
      UserError: no unit, or none of a time; not above 0.
    """
    return _read(text, what, TIMES, "250ms", _TIMES, zero)


def rate(text: str, what: str = "the rate") -> float:
    """Requests a second of "20/s", "90/min".

    Raises:
      UserError: no unit, or none of a rate; not above 0.
    """
    return _read(text, what, RATES, "20/s", _RATES)


def size(text: str, what: str = "the size") -> int:
    """Bytes of "30GiB" (1024^3) or "80GB" (1000^3).

    Raises:
      UserError: no unit, or none of a size; less than a byte, or more than 1e18.
    """
    return int(_read(text, what, SIZES, "30GiB", _SIZES))


def _read(
    text: str, what: str, units: Mapping[str, float], example: str, bounds: tuple[float, float, str], zero: bool = False
) -> float:
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UserError(f"{what} is {text!r}; give a number with a unit ({', '.join(units)}), such as {example}")
    number, unit = float(found[1]), found[2].strip()
    if unit not in units:
        wrong = f"has the unit {unit!r}" if unit else "has no unit"
        raise UserError(f"{what} is {text!r}, which {wrong}; give one of {', '.join(units)}, such as {example}")
    value = number * units[unit]
    least, most, base = bounds
    if not (0 <= value if zero else 0 < value):
        raise UserError(f"{what} is {text!r}; it must be {'at least' if zero else 'above'} 0, such as {example}")
    if value and not least <= value <= most:
        raise UserError(f"{what} is {text!r}; it must lie from {least:g}{base} to {most:g}{base}, such as {example}")
    return value


class Unit(click.ParamType):
    """An option with a unit.

    Args:
      read: `seconds`, `rate` or `size`.
      name: what the help shows.
      several: takes a list, 1/s,2/s, and gives a tuple.
    """

    def __init__(self, read: Callable[[str, str], float], name: str, *, several: bool = False):
        self._read, self._several = read, several
        self.name = f"{name}[,{name}...]" if several else name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        option = param.opts[0] if param is not None else "the option"
        if self._several:
            return tuple(self._read(part, option) for part in value.split(","))
        return self._read(value, option)
