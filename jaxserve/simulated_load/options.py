"""The options of `python -m jaxserve.simulate`: those of a load, of an engine's policy and of a deployment, and what only it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from jaxserve import generate, size
from jaxserve.engine.config import EngineConfig
from jaxserve.simulated_load.fault_text import EXAMPLES, FaultText
from models.errors import MOST as MOST_COUNT

STEP_TIMES = ("analytical", "compiled", "calibrated", "log")

_POLICY = ("policy", "rows", "budget", "multi_step", "prefill_tokens", "delay", "preferred", "prefill_workers", "decode_workers",
           "link", "queue_size", "queue_timeout")  # fmt: skip
_DEPLOYMENT = ("model", "dtype", "kv_dtype", "kv_pool", "page", "headroom", "reserve", "silicon", "machine")


def own(command: Callable[..., None]) -> Callable[..., None]:
    """What no other command has."""
    for option in reversed(_OWN):
        command = option(command)
    return command


def shared(command: click.Command) -> click.Command:
    """A deployment's options, as `python -m jaxserve.size` has them, and a policy's, as `python -m jaxserve.generate` has them, first."""
    there = {option.name for option in command.params}
    found = [
        option
        for names, other in ((_DEPLOYMENT, size.main), (_POLICY, generate.main))
        for option in other.params
        if option.name in names and option.name not in there
    ]
    command.params = [*found, *command.params]
    return command


def policy(options: dict[str, Any]) -> EngineConfig:
    """What the options say of a policy, taken out of them. Raises UserError for what could not be."""
    return EngineConfig(**{name: options.pop(name) for name in _POLICY})


_OWN = (
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
    click.option("--report", type=Path, help="Write a page there, with pictures (pip install 'jaxserve[report]')."),
)
