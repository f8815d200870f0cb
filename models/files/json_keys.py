"""Checked reads of one JSON object, such as a config.json: a value is what it must be, or one line says which key is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.errors import UserError, short

MAX_SIZE = 1 << 24  # beyond any model: a damaged file must not make us allocate for it


class JsonKeys:
    """The keys of an object. A key that is null is taken as missing.

    Args:
      values: the parsed object.
      origin: the file, named in errors.
      of: whose keys they are, named where one is missing, as ``a LlamaForCausalLM config``.
      within: what stands before a key in errors, as ``rope_scaling.``, where the object lies in another.
    """

    def __init__(self, values: Mapping[str, Any], origin: str, of: str, *, within: str = ""):
        self.values, self.origin, self._of, self._within = values, origin, of, within

    def given(self, key: str) -> bool:
        return self.values.get(key) is not None

    def refused(self, key: str, must: str) -> UserError:
        """The error to raise: the key, its value, and what would be right."""
        return UserError(f"{self.origin}: {self._within}{key} is {short(self.values.get(key))}; {must}")

    def size(self, key: str, default: int | None = None, *, least: int = 1, most: int = MAX_SIZE) -> int:
        """A whole number, also where it is written as 64.0.

        Raises:
          UserError: the key is missing and has no default, or its value is none from `least` to `most`.
        """
        value = self._value(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refused(key, f"it must be a whole number from {least} to {most}")
        return value

    def real(self, key: str, default: float | None = None, *, most: float = 1e30) -> float:
        """A positive number that a float32 holds too; errors as in `size`."""
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 1e-30 <= value <= most:
            raise self.refused(key, f"it must be a positive number, from 1e-30 to {most:g}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.refused(key, "it must be true or false")
        return value

    def entry(self, key: str) -> JsonKeys | None:
        """An object within this one, or None where there is none."""
        value = self._value(key, {})
        if not isinstance(value, Mapping):
            raise self.refused(key, "it must be an object")
        return JsonKeys(value, self.origin, self._of, within=f"{self._within}{key}.") if self.given(key) else None

    def tokens(self, key: str) -> tuple[int, ...]:
        """No, one or several token ids."""
        value = self._value(key, [])
        tokens = [_whole(token) for token in (value if isinstance(value, list) else [value])]
        if not all(isinstance(token, int) and abs(token) < 1 << 31 for token in tokens):
            raise self.refused(key, "it must be a token id or a list of them")
        return tuple(int(token) for token in tokens if token is not None)

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is None and default is None:
            raise UserError(f"{self.origin}: key {self._within + key!r} is missing; {self._of} needs it")
        return default if value is None else value


def _whole(value: Any) -> int | None:
    """The whole number that is meant, or None."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
