"""Replay a step log without a model: whether the scheduler decides again what it decided then.

Every request, cancellation and outcome of the log is given to the scheduler at its time, and each plan that it makes is compared with
the one that was logged, by its hash.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from costmodel import cli
from jaxserve.rerun import Rerun, rerun
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State
from jaxserve.scheduling.watch import Watch, Watches
from jaxserve.stepsummary import Summary
from jaxserve.version import version


class Printer(Watch):
    """A line for every plan that has something to do or to report."""

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if not plan.idle:
            print(f"{now:12.6f} s  {plan.digest[:8]}  {plan.brief}")


@click.command(epilog="Example: python -m jaxserve.replay steps.jsonl --summary")
@click.argument("log", type=Path)
@click.option("--plans", is_flag=True, help="Print every plan, in one line.")
@click.option("--summary", is_flag=True, help="Print what the run came to: rows, tokens, pages, times.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, for machines; with the summary.")
def main(log: Path, plans: bool, summary: bool, as_json: bool) -> None:
    """Replay a step log without a model and compare the hash of every plan. Ends with 1 where one differs."""
    sums, size = Summary(), os.path.getsize(log) if os.path.isfile(log) else 0
    with cli.Bars() as bars:
        if plans and not as_json:
            found = rerun(log, Watches(sums, Printer()))
        else:
            found = rerun(log, sums, bars.bar("bytes replayed", size))
    if as_json:
        print(json.dumps({"log": str(log), **to_json(found), "summary": sums.to_json(found.header.clock)}, indent=1))
    else:
        if summary:
            Console().print(sums.table(found.header.clock))
        print("\n".join(verdict(found)))
    if found.difference:
        raise click.exceptions.Exit(1)


def verdict(found: Rerun) -> Iterator[str]:
    """What is to be said about a replay, line by line."""
    if found.cut:
        yield f"line {found.cut} is cut off and was left out: the run that wrote it was ended in the middle of it"
    if found.difference is None:
        yield f"{found.plans} plans, all hashes equal" if found.plans else "the log has no plan, so nothing was compared"
        return
    line, what, logged, replayed = found.difference
    yield f"{what} differs, in line {line}; before it {found.plans} plans with equal hashes"
    if (wrote := found.header.jaxserve) != (here := version()):
        yield f"the log was written by another jaxserve ({wrote}) than this ({here})"
    yield from (f"logged: {logged}", f"replayed: {replayed}")


def to_json(found: Rerun) -> dict[str, Any]:
    """The same for machines."""
    difference = found.difference and found.difference._asdict()
    return {"equal": difference is None, "plans": found.plans, "difference": difference, "cut_line": found.cut}


if __name__ == "__main__":
    cli.run(main)
