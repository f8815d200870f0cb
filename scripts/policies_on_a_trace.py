"""Static, dynamic, continuous and chunked batching on the same requests of a trace: simulated on a chip, and measured on this machine.

The command alone stands here: `scripts/policy_runs.py` makes the runs, `scripts/policy_page.py` the page. What computes is imported once
the options are sound.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from costmodel.terminal import cli
from jaxserve.load.units import Unit, seconds, size
from models.errors import UserError
from scripts.options import Real, whole


class Scales(click.ParamType):
    """Factors of the trace's times, such as 2,1,0.5."""

    name = "X[,X...]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            scales = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            scales = ()
        if not scales or not all(0 < scale < float("inf") for scale in scales):
            raise UserError(f"--time-scales is {value!r}; give numbers above 0, such as 2,1,0.5")
        return scales


@click.command(
    epilog="Example: python -m scripts.policies_on_a_trace --trace azure_2023_conv.csv --out docs/experiments/policies.md"
)
@click.option("--trace", type=Path, required=True, help="Azure CSV or Mooncake JSONL.")
@click.option("--requests", type=whole(10), default=2000, show_default=True, help="The first so many of the trace.")
@click.option(
    "--time-scales", type=Scales(), default="2,1,0.5", show_default=True, help="Gaps times this; 0.5 is twice the rate."
)
@click.option("--model", default="llama-3-8b", show_default=True, help="That is simulated.")
@click.option("--chip", default="h100", show_default=True, help="That it is simulated on.")
@click.option("--rows", type=whole(), default=64, show_default=True, help="Sequences at once.")
@click.option("--budget", type=whole(), default=512, show_default=True, help="Tokens of a step under chunked.")
@click.option("--delay", type=Unit(seconds, "TIME"), default="50ms", show_default=True, help="Of the dynamic batcher.")
@click.option("--kv-pool", type=Unit(size, "SIZE"), default="30GiB", show_default=True, help="Of the simulated chip.")
@click.option("--measure", is_flag=True, help="Also measure this machine's engine, on lengths that fit it.")
@click.option("--measured-model", default="smollm2", show_default=True, help="As of jaxserve.generate.")
@click.option("--measured-requests", type=whole(4), default=64, show_default=True)
@click.option("--measured-rows", type=whole(), default=8, show_default=True)
@click.option("--measured-budget", type=whole(), default=72, show_default=True, help="Tokens of a step under chunked, there.")
@click.option("--length-scale", type=Real(), default=0.1, show_default=True, help="Of what is measured.")
@click.option("--time-scale", type=Real(), default=1.0, show_default=True, help="Of what is measured.")
@click.option(
    "--report", type=Path, help="HTML page of the runs: those measured, or the simulated ones at the last time scale."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--out", type=Path, help="Markdown file.")
def main(measure: bool, report: Path | None, as_json: bool, out: Path | None, **options: object) -> None:
    """Serve the same requests under four batching policies."""
    with cli.importing():
        from scripts.experiment import Experiment
        from scripts.policy_page import page
        from scripts.policy_runs import Asked, Measurement, measure_policies, simulate_policies

    experiment = Experiment("Batching policies on the same trace", out)
    if report is not None:
        from jaxserve.reporting.report import check_path, write_report

        check_path(report)
    asked = Asked(**{name: options[name] for name in Asked._fields})  # type: ignore[arg-type]
    with cli.Bars() as bars:
        simulated = simulate_policies(asked, bars.bar, pictured=report is not None and not measure)
        measured = None
        if measure:
            wanted = Measurement(**{name: options[name] for name in Measurement._fields})  # type: ignore[arg-type]
            measured = measure_policies(asked, wanted, bars.bar)
    if report is not None:
        shown = measured.runs if measured else simulated[-1].runs
        title = "Batching policies on the same trace, " + ("measured" if measured else "simulated")
        write_report(report, list(shown.values()), names=list(shown), title=title, command=experiment.command)
    if as_json:
        runs = [
            {"policy": name, "time_scale": served.scale, "witness": run.witness, **run.summary.to_json()}
            for served in (*simulated, *([measured] if measured else []))
            for name, run in served.runs.items()
        ]
        print(json.dumps({**experiment.facts, "asked": {**options, "trace": str(asked.trace)}, "runs": runs}, default=str))
    else:
        experiment.write(*page(asked, simulated, measured))


if __name__ == "__main__":
    cli.run(main)
