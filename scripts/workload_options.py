"""The options of a command that say which workload it draws: see `workload.draw`, whose arguments they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from scripts.options import Real, whole

Command = Callable[..., Any]


def workload_options(command: Command) -> Command:
    """Give a command the options --requests, --trace, --context, --scale, --stretch, --time-scale and --seed."""
    options = (
        click.option("--requests", type=whole(), default=256, show_default=True, help="Requests of the workload."),
        click.option("--trace", type=Path, help="Lengths: Azure's CSV or Mooncake's JSONL. Default: a small built-in sample."),
        click.option("--context", type=whole(), default=512, show_default=True, help="Tokens of the longest sequence."),
        click.option(
            "--scale", type=Real(), help="Factor of the trace's lengths. Default: what lets the longest just fit the context."
        ),
        click.option(
            "--stretch", type=Real(), default=1.0, show_default=True, help="A further factor of the answers' lengths."
        ),
        click.option(
            "--time-scale",
            type=Real(zero=True),
            default=0.0,
            show_default=True,
            help="Factor of gaps between arrivals; 0: all at once.",
        ),
        click.option("--seed", type=whole(0), default=0, show_default=True, help="Of the draw."),
    )
    for option in reversed(options):
        command = option(command)
    return command
