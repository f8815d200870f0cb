"""Values from a caller, checked and made plain: scalars of NumPy and JAX become Python's, and any other type or range is refused.

Plain values can be compared, sorted and written as JSON, so nothing that is accepted here can fail later for its type.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from models.errors import UserError, short

DTYPES = ("float32", "bfloat16")  # of weights and KV
LAYERS = ("auto", "unrolled", "scanned")
LARGEST = 2**63 - 1  # what fits a machine's integer, and is written as JSON in any Python
SHOWN = 40  # characters of a wrong value that a message repeats


def shown(value: object) -> str:
    """A value on one short line, whatever it is."""
    return short(value, SHOWN)


def plain(value: Any) -> Any:
    """The Python value of a scalar, or of an array without dimensions; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def integer(name: str, value: Any, least: int, most: int = LARGEST, rule: str = "") -> int:
    """A whole number from `least` to `most`; True and 5.0 are none.

    Args:
      name: of the value, as the message has it.
      rule: what is wanted, in the message's own words.

    Raises:
      UserError: it is something else.
    """
    found = value if type(value) is int else plain(value)
    if type(found) is not int:  # a subclass, such as an IntEnum, becomes one too
        found = int(found) if isinstance(found, numbers.Integral) and not isinstance(found, bool) else None
    if found is None or not least <= found <= most:
        low = f"it must be a whole number of at least {least}"
        raise UserError(
            f"{name} is {shown(value)}; {rule or (low if found is None or found < least else f'it must be at most {most}')}"
        )
    return found


def number(name: str, value: Any, fits: Callable[[float], bool], rule: str) -> float:
    """A real number that fits; True and "0.5" are none, and NaN fits nothing.

    Args:
      name: of the value, as the message has it.
      fits: whether it may be so; NaN is not asked about.
      rule: what is wanted, for the message.

    Raises:
      UserError: it is something else.
    """
    found = value if type(value) is float else plain(value)
    try:
        found = float(found) if isinstance(found, numbers.Real) and not isinstance(found, bool) else math.nan
    except OverflowError:  # an integer beyond 1.8e308
        found = math.nan
    if math.isnan(found) or not fits(found):
        raise UserError(f"{name} is {shown(value)}; {rule}")
    return found


def boolean(name: str, value: Any, rule: str = "give True or False") -> bool:
    """True or False, NumPy's included; 1 and "yes" are neither.

    Raises:
      UserError: it is something else.
    """
    found = plain(value)
    if not isinstance(found, bool):
        raise UserError(f"{name} is {shown(value)}; {rule}")
    return found


def settle(one: object, **values: Any) -> None:
    """Put checked values into a frozen dataclass, from its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(one, name, value)
