"""What this machine's steps take: measured over batches and contexts, fitted, and written down for predictors.

Only the command line stands here; JAX and all that needs it is imported once the options are known to be sound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costmodel.json_file import check_out, write_out
from costmodel.terminal import cli
from jaxserve.engine.config import EngineConfig
from jaxserve.options import CACHE, ENGINE, JSON, PolicyName, some, takes
from models.errors import UserError

CONTEXTS = (32, 96, 160, 256, 384, 512)


@click.command(epilog="Example: python -m jaxserve.calibrate --rows 64 --context 512 --out machine.json")
@takes(
    some(ENGINE, ["model", "dtype", "kv_dtype"]),
    click.option("--policy", type=PolicyName(), default="chunked", show_default=True, help="Scheduling policy of the engine."),
    click.option("--rows", type=int, default=64, show_default=True, help="Sequences at once."),
    click.option("--context", type=int, default=512, show_default=True, help="Longest sequence, tokens."),
    click.option(
        "--contexts",
        type=cli.Numbers(),
        default=",".join(map(str, CONTEXTS)),
        show_default=True,
        help="Tokens that rows hold; of the default those within --context.",
    ),
    click.option(
        "--rounds",
        type=click.IntRange(3, 10_000),
        default=10,
        show_default=True,
        help="How often each step is measured; the median counts.",
    ),
    click.option(
        "--requests",
        type=click.IntRange(1, 100_000),
        default=36,
        show_default=True,
        help="Of the largest of the engine's six runs.",
    ),
    click.option(
        "--log",
        type=Path,
        help="Steps of this log in place of the engine's runs; of an engine with the same options.",
    ),
    CACHE,
    click.option("--out", type=Path, help="Write the calibrated machine there (JSON), for predictors."),
    JSON,
)
def main(
    contexts: tuple[int, ...], rounds: int, requests: int, log: Path | None, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Measure every program of an engine, fit a few physical parameters, and check them on an engine's runs that they have not seen.

    Rounds of all programs and runs of the engine take turns. A model of 135M parameters takes about 6 minutes on two cores; how long the
    rounds will take is shown once the first one has run.
    """
    settings = EngineConfig(**options)
    check_out(out, "machine.json")
    longest = options["context"]
    if min(contexts) > longest or (contexts != CONTEXTS and max(contexts) > longest):
        raise UserError(
            f"--contexts has {max(contexts)} and --context is {longest}: no row can hold so many tokens; give at most {longest}, "
            "or a larger --context"
        )
    with cli.importing():
        from jaxserve.calibration.run import calibrate
        from jaxserve.calibration.tables import output
    with cli.Bars() as bars:
        found = calibrate(settings, contexts, rounds=rounds, requests=requests, log=log, bar=bars.bar)
    write_out(out, found.machine.to_json())
    output(found, as_json).print()


if __name__ == "__main__":
    cli.run(main)
