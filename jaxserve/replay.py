"""Replay a step log without a model: whether the scheduler decides again what it decided then.

Every request, cancellation and outcome of the log is given to the scheduler at its time. All that follows from these is worked out again
and compared with the log, field by field; what can't be is named.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from costmodel.terminal.tables import console
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State
from jaxserve.steplog.events import GIVEN
from jaxserve.steplog.replay import Replay, replay
from jaxserve.steplog.summary import Summary
from jaxserve.version import version


class Printer(Observer):
    """A line for every plan that has something to do or to report."""

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if not plan.idle:
            print(f"{now:12.6f} s  {plan.digest[:8]}  {plan.brief}")


@click.command(epilog="Example: python -m jaxserve.replay steps.jsonl --summary")
@click.argument("log", type=Path)
@click.option("--plans", is_flag=True, help="Print every plan, in one line.")
@click.option("--summary", is_flag=True, help="Print what the run came to: rows, tokens, pages, times.")
@click.option("--policy", help="MODULE:NAME of a policy of your own, of which the log is: its code is run.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, for machines; with the summary.")
def main(log: Path, plans: bool, summary: bool, policy: str | None, as_json: bool) -> None:
    """Replay a step log without a model, and compare every plan, and all else that follows from what the scheduler was told.

    Ends with 1 where anything differs, or where a line is not as it was written. Names the fields that are taken as given.
    """
    sums, size = Summary(), os.path.getsize(log) if os.path.isfile(log) else 0
    with cli.Bars() as bars:
        if plans and not as_json:
            found = replay(log, Observers(sums, Printer()), own=policy)
        else:
            found = replay(log, sums, bars.bar("bytes replayed", size), policy)
    if as_json:
        print(json.dumps({"log": str(log), **to_json(found), "summary": sums.to_json(found.header.clock)}, indent=1))
    else:
        if summary:
            console().print(sums.table(found.header.clock))
        print("\n".join(verdict(found)))
    if not found.equal:
        raise click.exceptions.Exit(1)


def verdict(found: Replay) -> Iterator[str]:
    """What is to be said about a replay, line by line."""
    if found.cut:
        yield f"line {found.cut} is cut off and was left out: the run that wrote it was ended in the middle of it"
    if found.changed:
        first = ", ".join(map(str, found.changed[:5])) + (", ..." if len(found.changed) > 5 else "")
        yield f"not as written, or not following on the line before: {len(found.changed)} lines ({first})"
        yield "they were changed, or lines before them are missing, doubled or out of place"
    if found.difference is None:
        yield f"{found.plans} plans, all hashes equal" if found.plans else "the log has no plan, so nothing was compared"
        yield from _end(found)
        if found.plans:
            yield "worked out again and equal: all fields but these, which were taken as given"
            yield from (f"  {event}: {', '.join(names)}" for event, names in _given(found).items())
        return
    line, what, logged, replayed = found.difference
    yield f"{what} differs, in line {line}; before it {found.plans} plans with equal hashes"
    if (wrote := found.header.jaxserve) != (here := version()):
        yield f"the log was written by another jaxserve ({wrote}) than this ({here})"
    yield from (f"logged: {logged}", f"replayed: {replayed}")


def _end(found: Replay) -> Iterator[str]:
    """What is known of the lines, and of the log's end."""
    count = sum(found.lines.values())
    if found.changed is None:
        yield f"{count} lines without checks, as older versions wrote them: a field that is given may have"
        yield "been changed, and a line that decided nothing may be missing, doubled or out of place"
    elif not found.changed:
        yield f"{count} lines, each as it was written" + (", to the end of the log" if found.closed else "")
    if found.changed is not None and not found.closed:
        yield "the log was not closed: the run was ended early, or lines are missing at its end"
    if found.flying:
        yield f"no outcome is told of {len(found.flying)} plans: {', '.join(map(str, found.flying[:5]))}"
    if found.unfinished:
        yield f"{found.unfinished} answers were not finished where the log ends"
    if found.untold is not None:
        yield f"the times of step {found.untold} are not told"


def _given(found: Replay) -> dict[str, list[str]]:
    """Fields that were not compared, of the events that the log has."""
    return {event: list(names) for event, names in GIVEN.items() if found.lines[event]}


def to_json(found: Replay) -> dict[str, Any]:
    """The same for machines."""
    return {
        "equal": found.equal,
        "plans": found.plans,
        "difference": found.difference and found.difference._asdict(),
        "cut_line": found.cut,
        "lines": dict(found.lines),
        "changed_lines": None if found.changed is None else list(found.changed),
        "closed": found.closed,
        "plans_without_outcome": list(found.flying),
        "answers_unfinished": found.unfinished,
        "step_without_times": found.untold,
        "not_compared": _given(found),
    }


if __name__ == "__main__":
    cli.run(main)
