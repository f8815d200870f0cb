"""`python -m jaxserve.simulate`: a load under a policy on a virtual clock, and what its clients would see of it.

Only the command line stands here; what computes is imported once the options are known to be sound.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from costmodel import cli
from jaxserve.load import options as loads
from jaxserve.load import output
from jaxserve.load.asked import Asked as LoadAsked
from jaxserve.load.interrupt import once
from jaxserve.load.session import Found, Loads
from jaxserve.load.slo import SLO
from jaxserve.simulation import options
from jaxserve.simulation.fault_text import told
from jaxserve.virtual.faults import Fault

_LOAD = {field.name for field in dataclasses.fields(LoadAsked)}


@options.shared
@click.command(
    epilog="Example: python -m jaxserve.simulate --model llama-3-8b --chip h100 --policy chunked --rate 5/s --prompt 768 --output 256 "
    '--requests 500 --slo ttft-p95=250ms --fault "stall 20s for 5s"'
)
@options.own
@loads.how
@click.pass_context
def main(
    ctx: click.Context,
    limits: tuple[str, ...],
    duration: float | None,
    faults: tuple[Fault, ...],
    as_json: bool,
    report: Path | None,
    log: Path | None,
    **given: Any,
) -> None:
    """Simulate a load under a policy: the scheduler that serves, on a virtual clock, with step times from a model, and faults.

    Latencies, goodput, Little's law and the search for saturation are those of python -m jaxserve.load, with witness simulated. Exits
    with 130 after Ctrl-C; what was simulated until then is kept and marked.
    """
    if report is not None:
        with cli.importing():
            from jaxserve.report_page import check_path
        check_path(report)
    slo = SLO.parse(limits) if limits else None
    mine = {name: given.pop(name) for name in _LOAD & set(given)}
    asked = LoadAsked(slo=slo, duration=math.inf if duration is None else duration, **mine)
    policy = options.policy(given)
    with cli.importing():
        from jaxserve.simulation.deployment import Asked, deploy
        from jaxserve.simulation.header import NO_SERVER, header, steps_table
        from jaxserve.simulation.run import run_load
    with once():
        with cli.Bars() as bars:
            deployment = deploy(Asked(policy=policy, **given), asked, faults, bars.bar)
            found = Loads(
                asked,
                lambda load, part: run_load(
                    deployment,
                    asked,
                    load,
                    part,
                    faults,
                    ended=bars.bar(f"simulating {load.name}, requests", asked.requests),
                    priced=report is not None,
                ),
            ).run()
        if not as_json:
            print(*header(deployment), *(f"fault: {told(fault)}" for fault in faults), sep="\n")
        output.show(found, as_json)
        if not as_json:
            output.console().print(steps_table(found.runs))
        if report is not None:
            said = f"{NO_SERVER}, with {deployment.steps.witness} step times ({deployment.steps.source})."
            _write(report, found, (said, *(f"Fault: {told(fault)}." for fault in faults)))
        output.leave(found)


def _write(report: Path, found: Found, alerts: tuple[str, ...]) -> None:
    from jaxserve.report_page import write_report

    command = shlex.join(["python", "-m", "jaxserve.simulate", *sys.argv[1:]])
    write_report(report, found.runs, title="jaxserve: a load, simulated", command=command, alerts=alerts)
    click.echo(f"the report is in {report}", err=True)
