"""This machine's engine at several loads, measured, and the same requests through the simulator with its calibrated step times.

Both see the same arrivals, prompts and answers under the same policy, pool and programs. What the simulator knows of the machine is what
`python -m jaxserve.calibrate --out` found, before any of these runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from jaxserve.load.units import Unit, rate
from models.errors import UserError
from scripts.options import whole


@click.command(
    epilog="Example: python -m scripts.simulated_measured --machine machine.json --rates 1/s,2/s,3/s --out simulated.md"
)
@click.option("--machine", type=Path, required=True, help="What python -m jaxserve.calibrate --out wrote, of this machine.")
@click.option(
    "--rates",
    type=Unit(rate, "RATE", several=True),
    default="1/s,2/s,3/s",
    show_default=True,
    help="Of Poisson arrivals, one load each.",
)
@click.option("--requests", type=whole(10), default=120, show_default=True, help="Of each load.")
@click.option("--warmup", type=whole(0), default=10, show_default=True, help="Of them, that do not count.")
@click.option("--prompt", default="16-160", show_default=True, help="Tokens of prompts: a number, or FROM-TO.")
@click.option("--output", default="16-96", show_default=True, help="Tokens of answers: a number, or FROM-TO.")
@click.option("--policy", type=click.Choice(("continuous", "chunked")), default="chunked", show_default=True)
@click.option("--rows", type=whole(), help="Sequences at once. Default: those that were calibrated.")
@click.option("--seed", type=whole(0), default=0, show_default=True)
@click.option(
    "--steady",
    is_flag=True,
    help="Every simulated step takes what is predicted for it. Default: it strays from that as single steps did in the calibration.",
)
@click.option("--repeat", type=whole(), default=3, show_default=True, help="So often each load is measured; medians count.")
@click.option(
    "--runs",
    type=Path,
    multiple=True,
    help="Measured runs that were kept (python -m jaxserve.load --json); nothing is measured. May be repeated.",
)
@click.option("--keep", type=Path, help="Write the measured runs there, for --runs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--out", type=Path, help="Markdown file.")
def main(
    machine: Path, steady: bool, runs: tuple[Path, ...], keep: Path | None, as_json: bool, out: Path | None, **asked: Any
) -> None:
    """Percentiles of TTFT and ITL, measured and simulated, side by side."""
    with cli.importing():
        from jaxserve.calibration.machine import Machine
        from scripts.experiment import Experiment
        from scripts.simulated_runs import Compared, by_load, kept, measured, page, simulate_again
    experiment = Experiment("Simulated against measured", out)
    known = Machine.read(machine)
    with cli.Bars() as bars:
        found = tuple([run for path in runs for run in kept(path)]) if runs else measured(known, bars.bar, **asked)
        if keep is not None:
            try:
                keep.write_text(json.dumps({"runs": [run.to_json() for run in found]}), encoding="utf-8")
            except OSError as error:
                raise UserError(f"--keep {keep} cannot be written: {error.strerror}; write elsewhere") from None
        loads = by_load(found)
        advance = bars.bar("loads simulated", len(loads))
        compared = [Compared.of(each, simulate_again(each[0], known, steady=steady), advance) for each in loads]
    if as_json:
        print(json.dumps({**experiment.facts, "loads": [each.to_json() for each in compared]}, indent=1))
    else:
        experiment.write(*page(known, compared))


if __name__ == "__main__":
    cli.run(main)
