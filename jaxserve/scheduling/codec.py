"""Frozen values to plain JSON and back, by the types that their fields are declared with.

For dataclasses and named tuples of whole numbers, numbers, words and each other. What comes from outside is checked against the
types, and an error names the field; what a value may be beyond its type, its own constructor checks.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from models.errors import UserError, short

T = TypeVar("T")

INFINITIES = {"inf": math.inf, "-inf": -math.inf}  # JSON has no infinite numbers


def encode(value: Any) -> Any:
    """A value as objects, lists, numbers, words and null. Infinite seconds become "inf" and "-inf"."""
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return {name: encode(getattr(value, name)) for name, _, _ in _fields(cast(Any, type(value)))}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def decode(kind: type[T], plain: Any, where: str) -> T:
    """The value of a type that plain JSON stands for. A field that isn't there takes its default.

    Args:
      kind: a dataclass or a named tuple.
      plain: as `encode` gives it, or `json.loads`.
      where: what it is called in errors, such as "policy".

    Raises:
      UserError: a field is unknown, missing, or not of its type, or the constructor refuses it.
    """
    if not isinstance(plain, Mapping):
        raise UserError(f"{where} is {short(plain)}; it must be an object with the fields of {kind.__name__}")
    fields = _fields(cast(Any, kind))
    unknown = sorted(set(plain) - {name for name, _, _ in fields})
    if unknown:
        raise UserError(f"{where} has no field {unknown[0]}; there are {', '.join(name for name, _, _ in fields)}")
    missing = [name for name, _, required in fields if required and name not in plain]
    if missing:
        raise UserError(f"{where} lacks the field {missing[0]}")
    values = {name: _read(hint, plain[name], f"{where}.{name}") for name, hint, _ in fields if name in plain}
    try:
        return kind(**values)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """(name, type, whether there is no default) of all that the constructor takes."""
    hints = get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        none = dataclasses.MISSING
        return tuple(
            (f.name, hints[f.name], f.default is none and f.default_factory is none) for f in dataclasses.fields(kind) if f.init
        )
    return tuple((name, hints[name], name not in kind._field_defaults) for name in kind._fields)


def _read(hint: Any, plain: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return plain
    if hint in (int, bool, str):
        if type(plain) is hint:
            return plain
        raise _wrong(where, plain, {int: "a whole number", bool: "true or false", str: "a word"}[hint])
    if hint is float:
        if type(plain) in (int, float) and math.isfinite(plain):
            return plain
        if isinstance(plain, str) and plain in INFINITIES:
            return INFINITIES[plain]
        raise _wrong(where, plain, 'a number, or "inf"')
    if origin in (Union, types.UnionType):  # with None, the only kind of union in use
        return None if plain is None else _read(next(arg for arg in args if arg is not types.NoneType), plain, where)
    if origin is Literal:
        if plain in args:
            return plain
        raise _wrong(where, plain, f"one of {', '.join(args)}")
    if origin is tuple:
        return _tuple(args, plain, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(args[1], plain, where)
    return decode(hint, plain, where)


def _tuple(args: tuple[Any, ...], plain: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(plain, Sequence) or isinstance(plain, str):
        raise _wrong(where, plain, "a list")
    if args[1:] == (...,):
        if args[0] is int and all([type(item) is int for item in plain]):
            return tuple(plain)  # what logs are full of
        args = (args[0],) * len(plain)
    if len(args) != len(plain):
        raise _wrong(where, plain, f"a list of {len(args)}")
    return tuple(_read(arg, item, f"{where}[{i}]") for i, (arg, item) in enumerate(zip(args, plain, strict=True)))


def _mapping(hint: Any, plain: Any, where: str) -> dict[int, Any]:
    """Whole numbers, which JSON writes as words, to values."""
    if not isinstance(plain, Mapping):
        raise _wrong(where, plain, "an object")
    found = {}
    for key, item in plain.items():
        if not key.removeprefix("-").isdecimal():
            raise _wrong(f"a key of {where}", key, "a whole number")
        found[int(key)] = _read(hint, item, f"{where}[{key}]")
    return found


def _wrong(where: str, plain: Any, right: str) -> UserError:
    return UserError(f"{where} is {short(plain)}; it must be {right}")
