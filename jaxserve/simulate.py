"""`python -m jaxserve.simulate`: a load under a policy on a virtual clock, and what its clients would see of it.

Only the command line stands here; what computes is imported once the options are known to be sound.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from costmodel.terminal import cli
from jaxserve.engine.config import EngineConfig
from jaxserve.load import output
from jaxserve.load.result import Run
from jaxserve.load.session import Found, run_loads
from jaxserve.load.slo import SLO
from jaxserve.load.spec import Load
from jaxserve.load.spec import LoadSpec as LoadAsked
from jaxserve.options import DEPLOYMENT, ENGINE, LOAD, REPORT, refuse, some, takes
from jaxserve.simulated_load.fault_text import EXAMPLES, FaultText, told
from jaxserve.simulator.faults import Fault
from jaxserve.version import version
from models.errors import MOST as MOST_COUNT
from models.errors import UserError

STEP_TIMES = ("analytical", "compiled", "calibrated", "log")
OF_A_LOG = {"log", "policy", "step_times", "limits", "warmup", "as_json", "report", "help"}  # options that go with one

Said = tuple[str, ...]  # lines before the figures

# What `EngineConfig` has of a policy; rows and queue_size have options of their own here.
_POLICY = ("policy", "rows", "budget", "multi_step", "prefill_tokens", "delay", "preferred", "prefill_workers", "decode_workers",
           "link", "queue_size", "queue_timeout")  # fmt: skip
_LOAD = {field.name for field in dataclasses.fields(LoadAsked)}


@click.command(
    epilog="Example: python -m jaxserve.simulate --model llama-3-8b --chip h100 --policy chunked --rate 5/s --prompt 768 --output 256 "
    '--requests 500 --slo ttft-p95=250ms --fault "stall 20s for 5s"'
)
@takes(
    DEPLOYMENT,
    some(ENGINE, (name for name in _POLICY if name not in ("rows", "queue_size"))),
    click.option(
        "--rows",
        type=click.IntRange(1, MOST_COUNT),
        help="Sequences at once, on each worker. Default: 64; chunked: at most the budget.",
    ),
    click.option(
        "--queue-size",
        type=click.IntRange(1, MOST_COUNT),
        help="Requests that may wait; more are refused. Default: any number.",
    ),
    click.option("--chip", default="h100", show_default=True, help="A name (python -m costmodel chips)."),
    click.option(
        "--tensor-parallel",
        type=click.IntRange(1, MOST_COUNT),
        default=1,
        show_default=True,
        help="Chips that share every layer.",
    ),
    click.option(
        "--pages", type=click.IntRange(1, MOST_COUNT), help="Of each worker's pool, all for sequences, instead of --kv-pool."
    ),
    click.option(
        "--prefix-cache/--no-prefix-cache",
        default=None,
        help="Find known beginnings again. Default: where prompts of the trace share some.",
    ),
    click.option(
        "--ahead",
        type=click.IntRange(0, 1),
        default=0,
        show_default=True,
        help="Plans made while one runs: 1 as the engine does, which hides the host's part; 0: who arrives is in the next step.",
    ),
    click.option(
        "--step-times",
        type=click.Choice(STEP_TIMES),
        default="analytical",
        show_default=True,
        help="The roofline; programs compiled for the chip, on its data sheet; kernels measured on a GPU (or --machine); a --log.",
    ),
    click.option(
        "--log", type=Path, help="A step log of generate or load: its policy, pool, requests and step times, simulated again."
    ),
    click.option("--fault", "faults", type=FaultText(), multiple=True, help=f"What goes wrong, several: {EXAMPLES}."),
    click.option("--json", "as_json", is_flag=True, help="JSON on standard output, as python -m jaxserve.load gives it."),
    REPORT,
    LOAD,
)
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
        found, said = _simulated(
            asked, EngineConfig(**{name: given.pop(name) for name in _POLICY}), given, faults, report is not None
        )
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
        return run_loads(asked, measure), said


def _logged(ctx: click.Context, log: Path | None, slo: SLO | None, warmup: int, priced: bool) -> tuple[Found, Said]:
    if log is None:
        raise UserError("--step-times log are those of a step log; add --log FILE, which generate and load write with --log")
    if ctx.get_parameter_source("step_times") is ParameterSource.COMMANDLINE and ctx.params["step_times"] != "log":
        raise UserError(
            f"--log has step times of its own, and --step-times is {ctx.params['step_times']}; leave one of them out"
        )
    others = {option.name or "" for option in ctx.command.params} - OF_A_LOG
    refuse(ctx, others, "is given, and a --log says itself what ran, when and how long it took; leave one of them out")
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

    command = cli.command_line("jaxserve.simulate")
    write_report(report, found.runs, title=title(found.runs), command=command, alerts=alerts(found.runs))
    click.echo(f"the report is in {report}", err=True)


if __name__ == "__main__":
    cli.run(main)
