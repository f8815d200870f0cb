"""The policies that there are. One entry is all that a new one needs: every command, its help and the docs' tables derive from it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jaxserve.scheduling import own
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.transfer import Link
from jaxserve.values import shown
from models.errors import UserError

LINK = 10.0  # GB/s: copies within one memory, a figure to replace with that of the link that is meant
OPTIONS = ("budget", "delay", "preferred", "prefill_workers", "decode_workers", "link")  # what only some policies take


@dataclasses.dataclass(frozen=True)
class Entry:
    """A policy.

    Attributes:
      kind: its class.
      help: what it does, in one line.
      options: those of `OPTIONS` that it takes.
      make: called with the limits and, by name, with what it takes of those options, `multi_step`, `piece` and `token_bytes`.
        None: `kind` is called.
    """

    kind: type[Policy]
    help: str
    options: tuple[str, ...] = ()
    make: Callable[..., Policy] | None = None

    @property
    def one_worker(self) -> bool:
        """It runs on one KV pool."""
        return "prefill_workers" not in self.options


def _disaggregated(
    limits: Limits,
    *,
    token_bytes: int,
    budget: int,
    link: float = LINK,
    prefill_workers: int = 1,
    decode_workers: int = 1,
    multi_step: int = 1,
) -> Disaggregated:
    """`token_bytes`: of the KV of a token; `link`: GB/s. Whoever makes the state gives it `decode_workers` more workers."""
    return Disaggregated(Link(token_bytes, link * 1e9), limits, prefill_workers, budget, multi_step=multi_step)


POLICIES: dict[str, Entry] = {
    "static": Entry(Static, "a fixed batch, until its longest answer ends"),
    "dynamic": Entry(
        Dynamic, "batches that form while they wait, by preferred sizes and a longest delay (Triton)", ("delay", "preferred")
    ),
    "continuous": Entry(Continuous, "whoever has come, with the whole prompt; who ends makes room at once (Orca)"),
    "chunked": Entry(
        Chunked,
        "the same with a token budget: long prompts in parts, beside decodes, in one program (Sarathi)",
        ("budget",),
    ),
    "disaggregated": Entry(
        Disaggregated,
        "prompts on some workers, answers on others, with a KV hand-off between them (DistServe, Dynamo, llm-d)",
        ("budget", "prefill_workers", "decode_workers", "link"),
        _disaggregated,
    ),
}


def takers(option: str) -> tuple[str, ...]:
    """The policies that take one of `OPTIONS`."""
    return tuple(name for name, entry in POLICIES.items() if option in entry.options)


def takes(policy: str | Policy, option: str) -> bool:
    """Whether a policy, or the one of that name, takes one of `OPTIONS`."""
    if isinstance(policy, str) and policy not in POLICIES:
        return option in inspect.signature(own.found(policy)).parameters
    for name, entry in POLICIES.items():
        if policy == name or type(policy) is entry.kind:
            return option in entry.options
    return option in inspect.signature(type(policy)).parameters


def mixes(policy: str | Policy) -> bool:
    """Whether its steps run decodes beside parts of prompts, within a budget of tokens, on one KV pool."""
    return takes(policy, "budget") and not takes(policy, "prefill_workers")


def check_name(name: Any, *, one_worker: bool = False) -> None:
    """Raises UserError for what is neither one of `POLICIES` nor MODULE:NAME. one_worker: several KV pools are none of the caller's."""
    known = [each for each, entry in POLICIES.items() if entry.one_worker or not one_worker]
    if not isinstance(name, str) or (name not in known and ":" not in name):
        raise UserError(f"policy {shown(name)} is unknown; give {', '.join(known)}; {own.EXAMPLE}")


def make_policy(name: str, limits: Limits, given: Mapping[str, Any], offered: Mapping[str, Any]) -> Policy:
    """The policy of that name, or MODULE:NAME of one's own.

    Args:
      given: options that the user gave; it must take them all.
      offered: options that it may take: what the caller would choose.

    Raises:
      UserError: there is none of that name, it doesn't take an option, or values that it refuses.
    """
    check_name(name)
    if (entry := POLICIES.get(name)) is None:
        return own.make(name, own.found(name), limits, given, offered)
    for option in given:
        if option in OPTIONS and option not in entry.options:
            named = " or ".join(takers(option))
            raise UserError(f"{option} is given, but a {name} policy has none; leave it out, or take {named}")
    return own.make(name, entry.make or entry.kind, limits, given, offered)
