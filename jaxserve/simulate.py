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
from click.core import ParameterSource

from costmodel.terminal import cli
from jaxserve.engine.config import EngineConfig
from jaxserve.load import options as loads
from jaxserve.load import output
from jaxserve.load.result import Run
from jaxserve.load.session import Found, Loads
from jaxserve.load.slo import SLO
from jaxserve.load.spec import Load
from jaxserve.load.spec import LoadSpec as LoadAsked
from jaxserve.simulated_load import options
from jaxserve.simulated_load.fault_text import told
from jaxserve.simulator.faults import Fault
from jaxserve.version import version
from models.errors import UserError

OF_A_LOG = {"log", "policy", "step_times", "limits", "warmup", "as_json", "report", "help"}  # options that go with one

Said = tuple[str, ...]  # lines before the figures

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
    with 130 after Ctrl-C, 143 after SIGTERM and 129 after SIGHUP; what was simulated until then is kept and marked.
    """
    if report is not None:
        with cli.importing():
            from jaxserve.reporting.report import check_path
        check_path(report)
    slo = SLO.parse(limits) if limits else None
    if log is not None or given["step_times"] == "log":
        found, said = _logged(ctx, log, slo, given["warmup"], report is not None)
    else:
        mine = {name: given.pop(name) for name in _LOAD & set(given)}
        asked = LoadAsked(slo=slo, duration=math.inf if duration is None else duration, **mine)
        found, said = _simulated(asked, options.policy(given), given, faults, report is not None)
    try:
        _print(found, said, as_json)
    finally:  # standard output may be full: the page is kept
        if report is not None:
            _write(report, found)
    output.leave(found)


def _simulated(
    asked: LoadAsked, policy: EngineConfig, given: dict[str, Any], faults: tuple[Fault, ...], priced: bool
) -> tuple[Found, Said]:
    with cli.importing():
        from jaxserve.deployment.deployment import DeploymentSpec, deploy
        from jaxserve.simulated_load.header import header
        from jaxserve.simulated_load.run import run_load
    with cli.Bars() as bars:
        deployment = deploy(DeploymentSpec(policy=policy, **given), asked, faults, bars.bar)

        def measure(load: Load, part: int) -> Run:
            ended = bars.bar(f"simulating {load.name}, requests", deployment.requests)
            return run_load(deployment, asked, load, part, faults, ended=ended, priced=priced)

        said = (*header(deployment), *(f"fault: {told(fault)}" for fault in faults))
        return Loads(asked, measure).run(), said


def _logged(ctx: click.Context, log: Path | None, slo: SLO | None, warmup: int, priced: bool) -> tuple[Found, Said]:
    if log is None:
        raise UserError("--step-times log are those of a step log; add --log FILE, which generate and load write with --log")
    if ctx.get_parameter_source("step_times") is ParameterSource.COMMANDLINE and ctx.params["step_times"] != "log":
        raise UserError(
            f"--log has step times of its own, and --step-times is {ctx.params['step_times']}; leave one of them out"
        )
    others = {option.name or "" for option in ctx.command.params} - OF_A_LOG
    loads.refuse(ctx, others, "is given, and a --log says itself what ran, when and how long it took; leave one of them out")
    own = None
    if ctx.get_parameter_source("policy") is ParameterSource.COMMANDLINE:
        own = str(ctx.params["policy"])
        if ":" not in own:
            raise UserError(f"--policy is {own}, and a --log says itself which policy ran; leave it out")
    with cli.importing():
        from jaxserve.simulated_load.logged import header, run_log
    with cli.Bars() as bars:
        run = run_log(log, slo, warmup, bars.bar, priced=priced, own=own)
    return Found((run,)), tuple(header(run))


def _print(found: Found, said: Said, as_json: bool) -> None:
    from jaxserve.simulated_load.header import NO_SERVER, idle_faults, steps_table

    if not as_json:
        print(f"jaxserve {version()}. {NO_SERVER}.", *said, sep="\n")
    output.show(found, as_json, (steps_table(found.runs), *idle_faults(found.runs)))


def _write(report: Path, found: Found) -> None:
    from jaxserve.reporting.report import write_report
    from jaxserve.simulated_load.header import alerts, title

    command = shlex.join(["python", "-m", "jaxserve.simulate", *sys.argv[1:]])
    write_report(report, found.runs, title=title(found.runs), command=command, alerts=alerts(found.runs))
    click.echo(f"the report is in {report}", err=True)


if __name__ == "__main__":
    cli.run(main)
