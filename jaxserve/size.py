"""Which batch cap, on which chips, holds an SLO: first by model, then by simulation with the very scheduler, and how to measure the rest.

Only the command line stands here; what computes is imported once the options are known to be sound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from jaxserve.load.units import Unit, rate, seconds
from jaxserve.options import DEPLOYMENT, JSON, PolicyName, some, takes
from models.errors import MOST as MOST_COUNT
from models.errors import UserError

STUDIED, SEARCHED = ("chunked",), ("chunked", "continuous")  # policies where nothing else is said
STEP_TIMES = ("analytical", "calibrated")
STUDY, SEARCH = 1000, 400  # requests of a run
MOST = 48  # configurations of a search


class Price(click.ParamType):
    """A chip and what it costs, such as h100=2.50, in USD/h."""

    name = "CHIP=USD/h"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        chip, _, text = str(value).partition("=")
        try:
            price = float(text.removesuffix("/h"))
        except ValueError:
            price = -1.0
        if not chip or not 0 < price < float("inf"):
            raise UserError(f"--price is {value!r}; give a chip and what an hour of it costs, above 0, such as h100=2.50")
        return chip, price


@click.command(
    epilog="Example: python -m jaxserve.size --model llama-3-8b --chip h100 --kv-pool 30GiB --context 1024 --ttft-p95 250ms "
    "--itl-p95 12ms --rate 20/s"
)
@takes(
    some(DEPLOYMENT, ["model"]),
    click.option(
        "--chip",
        multiple=True,
        default=("h100",),
        show_default=True,
        help="A name (python -m costmodel chips); several with --search.",
    ),
    click.option(
        "--tensor-parallel", type=cli.Numbers(), help="Chips that share every layer. Default: 1; 1,2,4,8 with --search."
    ),
    some(DEPLOYMENT, ["kv_pool"]),
    click.option("--context", type=int, help="Tokens of a full sequence. Default: the longest of the trace."),
    click.option("--prompt", type=int, help="Of the context, tokens of the prompt. Default: three quarters."),
    click.option("--answer", "--output", "answer", type=int, help="Of the context, tokens of the answer. Default: a quarter."),
    click.option("--rate", type=Unit(rate, "RATE"), help="Poisson arrivals, such as 20/s."),
    click.option("--trace", type=Path, help="Azure CSV or Mooncake JSONL, instead of --rate."),
    click.option(
        "--time-scale",
        type=float,
        default=1.0,
        show_default=True,
        help="Arrivals of the trace times this; 0.5 is twice the rate.",
    ),
    click.option(
        "--length-scale", type=float, default=1.0, show_default=True, help="Prompts and answers of the trace times this."
    ),
    click.option("--ttft-p95", type=Unit(seconds, "TIME"), help="Limit of the P95 of time to first token, such as 250ms."),
    click.option("--itl-p95", type=Unit(seconds, "TIME"), help="Limit of the P95 of inter-token latency, such as 12ms."),
    click.option(
        "--batch",
        type=cli.Numbers(),
        help="Batches to look at. Default: powers of two around what fits; 8 to 512 with --search.",
    ),
    click.option(
        "--policy",
        type=PolicyName(one_worker=True),
        multiple=True,
        help="Scheduling policy. Default: chunked; with --search also continuous.",
    ),
    click.option(
        "--budget", type=click.IntRange(1, MOST_COUNT), default=512, show_default=True, help="Tokens of a step, chunked."
    ),
    some(DEPLOYMENT, ["page", "headroom", "reserve", "dtype", "kv_dtype"]),
    click.option(
        "--requests",
        type=click.IntRange(2, MOST_COUNT),
        help=f"To simulate in each run. Default: {STUDY}; {SEARCH} with --search.",
    ),
    click.option("--seed", type=click.IntRange(0, MOST_COUNT), default=0, show_default=True, help="Of the arrivals."),
    click.option(
        "--step-times",
        type=click.Choice(STEP_TIMES),
        default="analytical",
        show_default=True,
        help="Of the simulations: the roofline, or kernels that were measured on a GPU, carried over to the chip, with intervals.",
    ),
    some(DEPLOYMENT, ["silicon", "machine"]),
    click.option(
        "--clients", type=cli.Numbers(), help="Closed-loop clients of the measurement plan. Default: what suits the pool."
    ),
    click.option(
        "--measured",
        multiple=True,
        metavar="[CAP=]FILE",
        help="Output of python -m jaxserve.load --json, to be judged beside the model.",
    ),
    click.option(
        "--search", is_flag=True, help="Find the cheapest chip, degree of parallelism, cap and policy that hold the SLO."
    ),
    click.option(
        "--price", "prices", type=Price(), multiple=True, help="USD/h of a chip, such as h100=2.50; without: the fewest chips."
    ),
    click.option(
        "--most",
        type=click.IntRange(1, MOST_COUNT),
        default=MOST,
        show_default=True,
        help="Configurations that a search simulates at most.",
    ),
    click.option(
        "--plot", type=Path, help="Draw the frontier of a search: .png, .pdf or .svg (pip install 'jaxserve[plots]')."
    ),
    click.option(
        "--report",
        type=Path,
        help="Write a page there, with the run of what is recommended, and the frontier of a search (pip install 'jaxserve[report]').",
    ),
    JSON,
)
def main(
    search: bool,
    prices: tuple[tuple[str, float], ...],
    most: int,
    plot: Path | None,
    report: Path | None,
    clients: tuple[int, ...] | None,
    measured: tuple[str, ...],
    as_json: bool,
    requests: int | None,
    policy: tuple[str, ...],
    **options: Any,
) -> None:
    """Size a deployment: what fits, what the model says, what a simulation says, and what is left to measure."""
    if not search:
        for name, given in (("--price", prices), ("--plot", plot)):
            if given:
                raise UserError(f"{name} belongs to a search; add --search")
    elif clients or measured or options["machine"]:
        raise UserError("--clients, --measured and --machine belong to the study of one deployment; leave out --search")
    with cli.importing():
        from costmodel.plot import check_path
        from jaxserve.sizing.spec import SizingSpec
    if plot is not None:
        check_path(plot)
    if report is not None:
        with cli.importing():
            from jaxserve.reporting import report as report_page
        report_page.check_path(report)
    asked = SizingSpec(
        requests=requests or (SEARCH if search else STUDY), policy=policy or (SEARCHED if search else STUDIED), **options
    )
    if search:
        _search(asked, dict(prices), most, plot, report, as_json)
    else:
        _study(asked, clients, measured, report, as_json)


def _study(asked: Any, clients: tuple[int, ...] | None, measured: tuple[str, ...], report: Path | None, as_json: bool) -> None:
    with cli.importing():
        from jaxserve.sizing.measured import Measured
        from jaxserve.sizing.page import study_page
        from jaxserve.sizing.study import study
        from jaxserve.sizing.study_tables import study_output
    runs = [run for text in measured for run in Measured.read(text)]
    with cli.Bars() as bars:
        found = study(asked, clients, runs, bars.bar)
    try:
        study_output(found, as_json).print()
    finally:  # standard output may be full: the page is kept
        if report is not None:
            study_page(report, found, _command())
            _told(report)


def _search(asked: Any, prices: dict[str, float], most: int, plot: Path | None, report: Path | None, as_json: bool) -> None:
    with cli.importing():
        from costmodel.hardware.chips import find_chip
        from jaxserve.sizing.frontier import draw_frontier
        from jaxserve.sizing.page import search_page
        from jaxserve.sizing.search import search
        from jaxserve.sizing.search_tables import search_output
    with cli.Bars() as bars:
        found = search(asked, {find_chip(name).name: price for name, price in prices.items()}, most, bars.bar)
    if plot is not None:
        draw_frontier(plot, found)
    try:
        search_output(found, as_json).print()
    finally:
        if report is not None:
            search_page(report, found, _command())
            _told(report)


def _command() -> str:
    return cli.command_line("jaxserve.size")


def _told(report: Path) -> None:
    click.echo(f"the report is in {report}", err=True)


if __name__ == "__main__":
    cli.run(main)
