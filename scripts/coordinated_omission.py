"""Coordinated omission, shown: a client that waits for its answer before it asks again leaves out the requests that would have waited.

A server takes 0.5 s a request, one at a time, and ten requests a second are due. Whoever counts from when each was due sees the queue.
Whoever asks only when the last answer is there sees 0.5 s, whatever the load was meant to be (Tene 2013, "How not to measure latency").
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from costmodel.terminal import cli
from jaxserve.kv.paged import Paged
from jaxserve.load.arrivals import Constant
from jaxserve.load.client import Item
from jaxserve.load.measure import play
from jaxserve.load.percentile import RULE
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run
from jaxserve.load.schedule import Closed, Open, Schedule
from jaxserve.load.units import Unit, rate, seconds
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.simulator.clients import ClosedLoop
from jaxserve.simulator.records import simulated
from models.errors import UserError
from scripts.experiment import Experiment, table
from scripts.one_at_a_time import OneAtATime

MEANING = (
    "Counted from when requests were due, each waits longer than the last. A client that holds a request back until the one before is "
    "answered, and starts its watch only then, leaves that wait out and reports a server that keeps up; so does a closed loop, which never "
    "asks as often as was meant. Neither figure is wrong, but they answer another question: how long the server takes, not how long a user "
    "waits."
)
HARNESS = (
    "`jaxserve.load` counts from when a request was due on an absolute schedule, and reports its own delay apart (client delay), so a late "
    "client can't hide a slow server."
)
LONGER = (8, 32, 128, 512)  # requests, to show what grows with the run and what doesn't


class View(NamedTuple):
    """One way to look at the server, and what it sees."""

    name: str
    how: str
    run: Run


def asked(requests: int, per_second: float) -> Iterator[Request]:
    """One token in, one token out, at a constant rate from 0 on."""
    due = Constant(per_second).times(np.random.default_rng(0))
    return (Request(id, range(id, id + 1), 1, arrival=at) for id, at in zip(range(requests), due, strict=False))


def views(requests: int, per_second: float, service: float) -> list[View]:
    """The server on a virtual clock, seen in three ways."""
    policy, pool = Continuous(Limits(rows=1)), Paged.of(requests + 1, 1)
    opened = simulated(policy, State.of(pool), asked(requests, per_second), lambda plan: service)
    closed = simulated(policy, State.of(pool), ClosedLoop(1, asked(requests, per_second)), lambda plan: service)
    waited = [record._replace(intended=record.started, sent=record.started) for record in opened]
    return [
        View("open loop, from when it was due", "what a user waits", _run(opened, "simulated")),
        View(
            "the same, from when it was sent",
            "the client holds a request back while one is under way",
            _run(waited, "simulated"),
        ),
        View("closed loop, 1 client", "the next request is asked when the last is answered", _run(closed, "simulated")),
    ]


def measured(requests: int, per_second: float, service: float) -> list[View]:
    """A server that sleeps, driven by the harness on a real clock: open loop, and closed."""
    found = []
    due = itertools.islice(Constant(per_second).times(np.random.default_rng(0)), requests)
    schedules: Sequence[tuple[str, Schedule]] = (
        ("open loop, from when it was due", Open(due)),
        ("closed loop, 1 client", Closed(1)),
    )
    for name, schedule in schedules:
        with OneAtATime(service) as client:
            played = play(client, schedule, (Item(id, (id,), 1) for id in range(requests)))
        found.append(View(name, "the load harness and a server that sleeps", _run(played.records, "measured", played.why)))
    return found


def _run(records: Sequence[RequestRecord], witness: str, why: str = "") -> Run:
    return Run.of(records, witness=witness, settings={}, complete=not why, why=why)


def rows(found: Sequence[View]) -> list[list[str]]:
    """Of the table: latencies in s."""
    lines = []
    for view in found:
        e2e = view.run.summary.e2e
        flag = "†" if 99 in e2e.few else ""
        figures = [f"{value:.2f}" for value in (e2e.mean, e2e.p50, e2e.p99)]
        lines.append(
            [view.name, view.run.witness, f"{e2e.n}", *figures[:2], figures[2] + flag, f"{view.run.summary.requests_per_s:.2f}"]
        )
    return lines


def _figure() -> Any:
    """matplotlib's Figure. Raises UserError where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("--out draws a figure with matplotlib, which is not installed; pip install 'jaxserve[plots]'") from None
    return Figure


def draw(path: Path, found: Sequence[View]) -> None:
    """Latency of each request against when it was due, as an SVG."""
    figure = _figure()(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for view, marker, face in zip(found, ("o", "s", "D"), ("black", "white", "0.6"), strict=True):
        records = view.run.records
        number = [record.id + 1 for record in records]
        axes.plot(
            number, [record.e2e for record in records], marker, markerfacecolor=face, markeredgecolor="black", label=view.name
        )
    axes.set(
        xlabel="request, in order", ylabel="latency, s", ylim=(0, None), title="The same server, the same requests (simulated)"
    )
    axes.legend(loc="upper left", fontsize=9)
    axes.grid(color="0.9", linewidth=0.5)
    figure.savefig(path, metadata={"Date": None})


@click.command(
    epilog="Example: python -m scripts.coordinated_omission --measure --out docs/experiments/coordinated-omission.md"
)
@click.option("--service", type=Unit(seconds, "TIME"), default="500ms", show_default=True, help="What a request takes.")
@click.option(
    "--rate", "per_second", type=Unit(rate, "RATE"), default="10/s", show_default=True, help="Of arrivals, evenly spaced."
)
@click.option("--requests", type=click.IntRange(1, 10_000), default=8, show_default=True, help="That are asked.")
@click.option(
    "--measure", is_flag=True, help="Also on a real clock, by the load harness; takes twice as long as the requests do."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--out", type=Path, help="Markdown file; a figure is written beside it (needs matplotlib).")
def main(service: float, per_second: float, requests: int, measure: bool, as_json: bool, out: Path | None) -> None:
    """Show coordinated omission: P99 by intended arrivals against P99 of a client that waits."""
    experiment = Experiment("Coordinated omission", out)
    if out is not None:
        _figure()  # said before the work
    found = views(requests, per_second, service)
    clocked = measured(requests, per_second, service) if measure else []
    lengths = [(count, views(count, per_second, service)) for count in LONGER]
    if as_json:
        views_json = [
            {"view": view.name, "witness": view.run.witness, **view.run.summary.to_json()} for view in (*found, *clocked)
        ]
        print(json.dumps({**experiment.facts, "service": service, "rate": per_second, "views": views_json}))
        return
    head = ["how latency is counted", "witness", "n", "mean, s", "P50, s", "P99, s", "answered/s"]
    growing: list[list[Any]] = [
        [f"{count}", f"{count / per_second:.1f}", *(f"{view.run.summary.e2e.p99:.2f}" for view in three)]
        for count, three in lengths
    ]
    figure = out.with_suffix(".svg") if out else None
    if figure:
        draw(figure, found)
    experiment.write(
        f"A server takes {service:g} s a request and serves one at a time; {per_second:g} requests/s are due, evenly spaced, {requests} "
        "in all.",
        table(head, [*rows(found), *rows(clocked)]),
        f"† {requests} values are too few for a P99 of their own: it is the largest. Percentiles: {RULE}.",
        *([f"![Latency of each request]({figure.name})"] if figure else []),
        f"The server can answer {1 / service:g} requests/s, so the queue grows by {max(per_second - 1 / service, 0):g} a second.",
        MEANING,
        "The longer the run, the larger the gap; P99 in s:",
        table(["requests", "due within, s", *(view.name for view in found)], growing),
        HARNESS,
    )


if __name__ == "__main__":
    cli.run(main)
