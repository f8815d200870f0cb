"""The engine's speed: what the host adds to a step, what batching policies are worth, and how other engines serve the same requests.

All systems serve one workload, drawn from a trace (`scripts/workload.py`), and take turns, so that a disturbance of the machine falls
on all of them. Every figure is measured unless it says otherwise; where a target is not met, the profile of the run says why.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from costmodel.terminal import cli
from models.errors import UserError
from scripts.options import whole
from scripts.workload_options import workload_options

POLICIES, PEERS = ("static", "continuous", "chunked"), ("transformers", "llama.cpp")
# Tokens of a step under chunked: as many as rows, and one piece of a prompt. Fewer bits of prompts are padded to larger programs than with
# more, so both ITL and the whole run gain; `scripts/simulated_bench.py` shows it.
BUDGET = 80


class Names(click.ParamType):
    """An option that takes some of a few names, or none."""

    name = "NAME[,NAME...]"

    def __init__(self, known: Sequence[str]):
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name for name in str(value).split(",") if name != "none"))
        if unknown := [name for name in names if name not in self.known]:
            raise UserError(f"{unknown[0]!r} is unknown here; give some of {', '.join(self.known)}, or none")
        return names


@click.command(epilog="Example: python -m scripts.bench_engine --trace azure_2023_conv.csv --requests 256 --repeat 2")
@click.option("--model", default="smollm2", show_default=True, help="Of our engine; the peers know smollm2 alone.")
@workload_options
@click.option("--policies", type=Names(POLICIES), default=",".join(POLICIES), show_default=True, help="Of our engine.")
@click.option("--peers", type=Names(PEERS), default=",".join(PEERS), show_default=True, help="Other engines, or none.")
@click.option("--repeat", type=whole(), default=2, show_default=True, help="How often the systems take turns.")
@click.option("--rows", type=whole(), default=64, show_default=True, help="Requests in a step, ours and llama.cpp's.")
@click.option("--transformers-rows", type=whole(), default=32, show_default=True, help="Those of transformers.")
@click.option("--budget", type=whole(), default=BUDGET, show_default=True, help="Tokens of a step under chunked.")
@click.option("--dtype", default="float32", show_default=True, help="Of our weights and KV; the peers' are 32 bits.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(*, model: str, policies: tuple[str, ...], peers: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Measure the engine's host overhead, its policies on a mixed workload, and two other engines on the same one."""
    if not policies:
        raise UserError(f"--policies names none; give at least one of {', '.join(POLICIES)}")
    if peers and model != "smollm2":
        raise UserError(f"the peers run smollm2 and --model is {model}; add --peers none")

    with cli.importing():
        from scripts.engine_report import show
        from scripts.engine_rounds import compare

    with cli.Bars() as bars:
        result = compare(
            model, policies, peers, bars, tell=lambda line: None if as_json else print(line, flush=True), **options
        )
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        show(result, Console(width=None if Console().is_terminal else 160, highlight=False))


if __name__ == "__main__":
    cli.run(main)
