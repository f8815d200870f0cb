"""Policies and memories by name, and as plain JSON: what a log says at its head, so that it can be replayed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from jaxserve.kv.memory import Memory
from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.codec import decode, encode
from jaxserve.scheduling.own import found
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.registry import POLICIES
from models.errors import UserError, short


def policy_name(policy: Policy) -> str:
    """One of `POLICIES`; of another policy MODULE:NAME of its type."""
    kind = type(policy)
    return next((name for name, entry in POLICIES.items() if entry.kind is kind), f"{kind.__module__}:{kind.__qualname__}")


def policy_json(policy: Policy) -> dict[str, Any]:
    """All that a policy is: its name and every field.

    Raises:
      UserError: it is no dataclass, so that its fields aren't known, or stands where it can't be found again.
    """
    if "<locals>" in type(policy).__qualname__:
        raise UserError(
            f"the policy {policy_name(policy)} can't be written down; move it out of the function that it is defined in"
        )
    if not dataclasses.is_dataclass(policy):
        raise UserError(
            f"the policy {policy_name(policy)} can't be written down, for what it is made of isn't known; make it a frozen dataclass"
        )
    return {"name": policy_name(policy), **encode(policy)}


def policy_of(plain: Any, own: str | None = None) -> Policy:
    """The policy that `policy_json` wrote down, or that somebody wrote by hand: fields that aren't there take their defaults.

    Args:
      own: MODULE:NAME of a policy that isn't ours and whose code may run.

    Raises:
      UserError: the name is unknown, or a field is unknown, missing, of another type, or out of its range.
    """
    name = plain.get("name") if isinstance(plain, Mapping) else None
    if isinstance(name, str) and ":" in name:
        if (
            own is None or own.partition(":")[2] != name.partition(":")[2]
        ):  # its module may be another: that of a script has no name
            raise UserError(f"policy.name is {short(name)}, whose code is not jaxserve's; say --policy {name} to run it")
        kind = found(own)
        if not dataclasses.is_dataclass(kind):
            raise UserError(f"policy {own} is no dataclass, so it can't be made of what is written down")
        return decode(cast(type[Policy], kind), {key: value for key, value in plain.items() if key != "name"}, "policy")
    kind, fields = _named(plain, "policy", {name: entry.kind for name, entry in POLICIES.items()})
    return decode(kind, fields, "policy")


class _Paged(NamedTuple):
    """How a pool of pages is made."""

    pages: int
    page: int  # tokens
    prefix: bool = False


class _Slots(NamedTuple):
    """How a pool of slots is made."""

    total: int
    size: int  # tokens


PAGES, SLOTS = 2**31 - 1, 2**22  # at most: numbers of pages have 32 bits, and of slots each is written down

MEMORIES: Mapping[str, type] = {"paged": _Paged, "slots": _Slots}


def memory_json(memory: Memory) -> dict[str, Any]:
    """What kind of memory it is, and how large; what it holds isn't written down.

    Raises:
      UserError: it is neither pages nor slots.
    """
    if isinstance(memory, Paged):
        return {"kind": "paged", **_Paged(memory.pages.total, memory.page, memory.remembers)._asdict()}
    if isinstance(memory, Slots):
        return {"kind": "slots", **_Slots(memory.total, memory.size)._asdict()}
    raise UserError(f"a memory of type {type(memory).__name__} can't be written down; those that can are {', '.join(MEMORIES)}")


def memory_of(plain: Any) -> Memory:
    """An empty memory like the one that `memory_json` wrote down.

    Raises:
      UserError: the kind is unknown, or a field is unknown, missing, of another type, below 1, or more than anything could address.
    """
    kind, fields = _named(plain, "memory", MEMORIES, "kind")
    made: Any = decode(kind, fields, "memory")
    for name, value in made._asdict().items():
        if value < 1 and name != "prefix":
            raise UserError(f"memory.{name} is {value}; it must be at least 1")
        if value > (most := SLOTS if name == "total" else PAGES):
            raise UserError(f"memory.{name} is {value}; it can be at most {most}")
    return Paged.of(made.pages, made.page, prefix=made.prefix) if isinstance(made, _Paged) else Slots.of(made.total, made.size)


def _named(plain: Any, where: str, kinds: Mapping[str, type], key: str = "name") -> tuple[type, dict[str, Any]]:
    """The type that a description names, and the rest of the description."""
    if not isinstance(plain, Mapping) or not isinstance(plain.get(key), str) or plain[key] not in kinds:
        found = plain.get(key) if isinstance(plain, Mapping) else plain
        raise UserError(f"{where}.{key} is {found!r}; there are {', '.join(kinds)}")
    return kinds[plain[key]], {name: value for name, value in plain.items() if name != key}
