"""The main job: decode a batch of prompts together and say, for each compiled program, what it should cost and what it took.

Only the command line stands here. JAX and all that needs it is imported once the options are known to be sound, so --help and a
slip of the keyboard are answered at once, and Ctrl-C ends the imports as it ends the rest.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from jaxserve.main_job.settings import DTYPES, DecodeConfig
from jaxserve.programs.compile_cache import cache_options
from models.errors import UserError


@click.command(epilog="Example: python -m jaxserve.decode --batch 1,8,64 --max-new-tokens 32")
@click.option(
    "--batch", "batches", type=cli.Numbers(), default="64", show_default=True, help="Rows decoded together; several sweep."
)
@click.option(
    "--model", default="smollm2", show_default=True, help="smollm2, a folder, a .gguf file, a Hub name or random:PRESET."
)
@click.option("--prompt-file", type=Path, help="One prompt a line, or JSONL with a key prompt. Default: 64 built-in ones.")
@click.option("--raw", is_flag=True, help="Go on with prompts as they stand. Default: turns of a chat, with a template.")
@click.option("--max-new-tokens", type=int, default=64, show_default=True, help="Tokens to generate for each prompt at most.")
@click.option("--context", type=int, help="Tokens of the longest sequence. Default: what the prompts need.")
@click.option(
    "--dtype", default="auto", show_default=True, help=f"Of the weights: auto (the fastest here), {', '.join(DTYPES)}."
)
@click.option("--kv-dtype", help="Of the KV pool. Default: the weights'.")
@click.option("--layers", default="auto", show_default=True, help="unrolled, scanned, or auto: scanned on a TPU.")
@click.option("--page-size", type=int, default=16, show_default=True, help="Tokens of a KV page.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the sampling: that of the first row, each next one's is 1 more."
)
@cache_options
@click.option("--show", type=int, default=3, show_default=True, help="Completions to print.")
@click.option("--report", type=Path, help="Write a page there, with pictures (pip install 'jaxserve[report]').")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, for machines.")
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

            write_page(report, outcome, shlex.join(["python", "-m", "jaxserve.decode", *sys.argv[1:]]))
            click.echo(f"the report is in {report}", err=True)


if __name__ == "__main__":
    cli.run(main)
