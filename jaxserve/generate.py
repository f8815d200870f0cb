"""Serve many prompts at once and stream their answers, under any policy.

Only the command line stands here. JAX and all that needs it is imported once the options are known to be sound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from jaxserve.engine.config import EngineConfig
from jaxserve.generation.prompts import read_prompts
from jaxserve.options import CACHE, ENGINE, LOG, RAW, SAMPLING, takes
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError


@click.command(epilog="Example: python -m jaxserve.generate --policy continuous --prompts prompts.txt --max-tokens 64")
@takes(
    click.option(
        "--prompts", "prompt_file", type=Path, required=True, help="File with a prompt a line, or JSONL with a key prompt."
    ),
    RAW,
    ENGINE,
    SAMPLING,
    CACHE,
    LOG,
    click.option("--json", "as_json", is_flag=True, help="JSON lines: one for each prompt as it ends, the last a summary."),
)
def main(prompt_file: Path, raw: bool, as_json: bool, **options: Any) -> None:
    """Serve all prompts of a file at once: answers as they grow or end, then what the run took, step by step.

    After Ctrl-C, SIGTERM or SIGHUP it exits with 2; answers as far as they came are printed, and end with abort.
    """
    params = SamplingParams(**{name: options.pop(name) for name in SAMPLING})
    settings = EngineConfig(**options)
    texts = read_prompts(prompt_file)
    if settings.log and Path(settings.log).exists() and Path(settings.log).samefile(prompt_file):
        raise UserError(f"--log {settings.log} is the file of --prompts and would be written over; give another name")

    with cli.importing():
        from jaxserve.generation.display import JsonLines, Printed  # see above
        from jaxserve.generation.session import Session

    with cli.Bars() as bars:
        session = Session.begin(settings, params, texts, bars.bar, raw=raw)
    results = session.run(JsonLines() if as_json else Printed())
    if results.interrupted:
        counts = f"{results.answered} of {results.asked} prompts"
        click.echo(f"error: {results.cut} when {counts} had their answers; those of the others end with abort", err=True)
        raise click.exceptions.Exit(2)


if __name__ == "__main__":
    cli.run(main)
