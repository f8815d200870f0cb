"""Faults as people write them on a command line: `--fault "slow 10s..12s x3"`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from jaxserve.load.units import seconds
from jaxserve.simulator.faults import Burst, Fault, Leave, Slow, Stall
from models.errors import UserError

_TIME = r"([^\s.]*(?:\.\d[^\s.]*)?)"  # up to the two dots of a range, or to a blank; its unit is looked at afterwards


class _Form(NamedTuple):
    """One way to write a fault. make: of what the groups of the pattern hold."""

    pattern: str
    make: Callable[..., Fault]


class _Kind(NamedTuple):
    """A kind of fault. shown: how it is written, for messages."""

    forms: tuple[_Form, ...]
    shown: str


def read_fault(text: str) -> Fault:
    """What a user means.

    Raises:
      UserError: no such fault, a form that it has not, a time without a unit, or a figure that cannot be.
    """
    words = text.split()
    kind = _KINDS.get(words[0] if words else "")
    if kind is None:
        shown = "; ".join(each.shown for each in _KINDS.values())
        raise UserError(f"--fault is {text!r}, which is none of {', '.join(_KINDS)}; write {shown}")
    for form in kind.forms:
        if found := re.fullmatch(form.pattern, " ".join(words[1:])):
            try:
                return form.make(*found.groups())
            except UserError as error:
                raise UserError(f"--fault is {text!r}: {error}") from None
    raise UserError(f"--fault is {text!r}; write {kind.shown}")


def told(fault: Fault) -> str:
    """What happens, for people."""
    match fault:
        case Slow(factor, step=int(step)):
            return f"step {step} takes {factor:g} times as long"
        case Slow(factor, at=at, until=None):
            return f"the first step from {at:g} s on takes {factor:g} times as long"
        case Slow(factor, at=at, until=until):
            return f"steps that begin from {at:g} to {until:g} s take {factor:g} times as long"
        case Stall(worker, at, long):
            return f"worker {worker} does nothing from {at:g} s on for {long:g} s"
        case Burst(at, requests, prompt, output):
            return f"at {at:g} s {requests} requests more come, each of {prompt} + {output} tokens"
        case Leave(id, tokens=None, at=at):
            return f"the client of request {id} leaves at {at:g} s"
    assert isinstance(fault, Leave)
    return f"the client of request {fault.id} leaves after {fault.tokens} tokens"


class FaultText(click.ParamType):
    """--fault."""

    name = '"KIND ..."'

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fault:
        return read_fault(value) if isinstance(value, str) else value


def _at(text: str) -> float:
    return seconds(text, "its time", zero=True)


def _factor(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"the factor is {text!r}; give a number above 0, such as x3") from None


_KINDS = {
    "slow": _Kind(
        (
            _Form(r"step (\d+) x(\S+)", lambda step, factor: Slow(_factor(factor), step=int(step))),
            _Form(rf"{_TIME}\.\.{_TIME} x(\S+)", lambda at, until, factor: Slow(_factor(factor), at=_at(at), until=_at(until))),
            _Form(rf"{_TIME} x(\S+)", lambda at, factor: Slow(_factor(factor), at=_at(at))),
        ),
        '"slow 10s..12s x3", "slow 10s x3" (one step) or "slow step 120 x3"',
    ),
    "stall": _Kind(
        (
            _Form(
                rf"{_TIME} for {_TIME}(?: worker (\d+))?",
                lambda at, long, worker: Stall(int(worker or 0), _at(at), seconds(long, "how long it is")),
            ),
        ),
        '"stall 20s for 5s" or "stall 20s for 5s worker 1"',
    ),
    "burst": _Kind(
        (
            _Form(
                rf"{_TIME} (\d+) of (\d+)\+(\d+)",
                lambda at, count, prompt, output: Burst(_at(at), int(count), int(prompt), int(output)),
            ),
        ),
        '"burst 30s 50 of 768+256" (requests, tokens of a prompt and of an answer)',
    ),
    "leave": _Kind(
        (
            _Form(rf"(\d+) at {_TIME}", lambda id, at: Leave(int(id), at=_at(at))),
            _Form(r"(\d+) after (\d+) tokens?", lambda id, tokens: Leave(int(id), tokens=int(tokens))),
        ),
        '"leave 17 at 12s" or "leave 17 after 5 tokens" (17 is a request\'s number, from 0)',
    ),
}
EXAMPLES = "; ".join(kind.shown for kind in _KINDS.values())
