"""The main job: decode a batch of prompts together and say, for each compiled program, what it should cost and what it took.

Only the command line stands here. JAX and all that needs it is imported once the options are known to be sound, so --help and a
slip of the keyboard are answered at once, and Ctrl-C ends the imports as it ends the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from jaxserve.main_job.settings import DecodeConfig
from jaxserve.options import CACHE, ENGINE, JSON, RAW, REPORT, SAMPLING, Renamed, some, takes
from models.errors import UserError


@click.command(epilog="Example: python -m jaxserve.decode --batch 1,8,64 --max-new-tokens 32")
@takes(
    click.option(
        "--batch", "batches", type=cli.Numbers(), default="64", show_default=True, help="Rows decoded together; several sweep."
    ),
    some(ENGINE, ["model"]),
    click.option(
        "--prompts",
        "--prompt-file",
        "prompt_file",
        cls=Renamed,
        type=Path,
        help="File with a prompt a line, or JSONL with a key prompt. Default: 64 built-in ones.",
    ),
    RAW,
    click.option(
        "--max-tokens",
        "--max-new-tokens",
        "max_new_tokens",
        cls=Renamed,
        type=int,
        default=64,
        show_default=True,
        help="Most tokens of an answer.",
    ),
    some(ENGINE, ["context", "dtype", "kv_dtype", "layers"]),
    click.option("--page-size", type=int, default=16, show_default=True, help="Tokens of a KV page."),
    some(SAMPLING, ["temperature", "seed"]),
    CACHE,
    click.option("--show", type=int, default=3, show_default=True, help="Answers to print."),
    REPORT,
    JSON,
)
def main(show: int, as_json: bool, report: Path | None, **options: Any) -> None:
    """Decode a batch of prompts together, with the cost of every compiled program: modelled, compiled and measured."""
    settings = DecodeConfig(**options)
    if show < 0:
        raise UserError(f"--show is {show}; it must be at least 0")

    if report is not None:
        with cli.importing():
            from jaxserve.reporting.report import check_path
        check_path(report)
    with cli.importing():
        from jaxserve.main_job.job import run  # see above

    with cli.Bars() as bars:
        outcome = run(settings, bars.bar)
    try:
        if as_json:
            print(json.dumps(outcome.to_json(), indent=1))
        else:
            outcome.show(show)
    finally:  # standard output may be full: the page is kept
        if report is not None:
            from jaxserve.main_job.page import write_page

            write_page(report, outcome, cli.command_line("jaxserve.decode"))
            click.echo(f"the report is in {report}", err=True)


if __name__ == "__main__":
    cli.run(main)
