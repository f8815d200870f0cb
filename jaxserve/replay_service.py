"""Simulate a service that others recorded, and say how far off the simulation is: with nothing fitted, and with little.

Only the command line stands here; what computes is imported once the options are known to be sound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from models.errors import MOST as MOST_COUNT


@click.command(epilog="Example: python -m jaxserve.replay_service rtxpro6000_llama-3.1-8b --fitted-on rtx4090_llama-3.1-8b")
@click.argument("folder", type=Path)
@click.option("--fitted-on", type=Path, help="Try what is fitted to this recording as well, with the other data sheet.")
@click.option(
    "--first",
    type=click.IntRange(1, MOST_COUNT),
    default=100,
    show_default=True,
    help="Fit to so many requests; the others judge.",
)
@click.option("--model", help="A name (python -m costmodel models) or a config.json. Default: that of the recording.")
@click.option("--chip", help="A name (python -m costmodel chips). Default: that of the recording.")
@click.option(
    "--silicon", help="Kernels where nothing is fitted: a folder of tables, a calibration, or none. Default: an H100's."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output, for machines.")
def main(as_json: bool, **options: Any) -> None:
    """Simulate the recorded service in FOLDER (requests.jsonl, meta.json) with our own scheduler at its settings."""
    with cli.importing():
        from jaxserve.recorded_service.study import ServiceSpec, study
        from jaxserve.recorded_service.tables import output
    with cli.Bars() as bars:
        found = study(ServiceSpec(**options), bars.bar)
    output(found, as_json).print()


if __name__ == "__main__":
    cli.run(main)
