"""Policies that somebody else wrote: named MODULE:NAME, found where Python finds modules, and made with the options that they take."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from jaxserve.scheduling.codec import encode
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.policy import Policy
from jaxserve.values import shown
from models.errors import UserError, short

EXAMPLE = "a policy of your own is MODULE:NAME, such as shortest:ShortestFirst"


def is_policy(value: object) -> bool:
    """Whether it keeps the contract of `Policy`, as far as that can be seen."""
    return (
        callable(value)
        and isinstance(getattr(value, "limits", None), Limits)
        and type(getattr(value, "multi_step", None)) is int
    )


def found(name: str) -> Callable[..., Any]:
    """What MODULE:NAME is: a class of policies, or a function that makes one. Its module is imported, so its code runs.

    Raises:
      UserError: there is no such module, it can't be imported, or it has no such name.
    """
    module, _, attribute = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # whatever a module of somebody else raises while it is imported
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"policy {short(name)}: module {short(module)} can't be imported ({why}); run where Python finds it"
        ) from None
    if not callable(made):
        raise UserError(f"policy {short(name)}: module {module} has no class or function {short(attribute)}; {EXAMPLE}")
    return made


def make(name: str, kind: Callable[..., Any], limits: Limits, given: Mapping[str, Any], offered: Mapping[str, Any]) -> Policy:
    """A policy.

    Args:
      name: in messages.
      kind: its class, or a function that makes one, as `found` gives it.
      limits: its first argument.
      given: options that the user gave; it must take them all.
      offered: options that it may take: what the engine would choose.

    Raises:
      UserError: it doesn't take an option, or what it makes is no policy.
    """
    try:
        takes = inspect.signature(kind).parameters
    except (TypeError, ValueError):
        raise UserError(f"policy {short(name)} is {shown(kind)}, which makes no policy; {EXAMPLE}") from None
    for option in given:
        if option not in takes:
            raise UserError(f"{option} is given, but {name} takes none; leave it out")
    options = {option: value for option, value in {**offered, **given}.items() if option in takes}
    try:
        policy = kind(limits, **options)
    except TypeError as error:
        raise UserError(f"policy {name} can't be made of limits and {', '.join(options) or 'nothing else'}: {error}") from None
    if not is_policy(policy) or not dataclasses.is_dataclass(policy):
        raise UserError(
            f"policy {name} made {shown(policy)}, which is no policy: it must be a frozen dataclass with limits and "
            "multi_step, and be called with (state, now); docs/policy.md says how"
        )
    try:
        json.dumps(encode(policy))
    except (TypeError, ValueError, NameError, KeyError) as error:
        raise UserError(
            f"policy {name} can't be written down ({error}); make it a frozen dataclass of numbers, words and Limits"
        ) from None
    return cast(Policy, policy)
