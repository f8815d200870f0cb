"""Which programs to compile for a trace: the ladder of batches, prefills and table widths that pads least, and what it saves.

Only the command line stands here; what computes is imported once the options are known to be sound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costmodel.json_file import check_out, write_out
from costmodel.terminal import cli
from jaxserve.options import DEPLOYMENT, JSON, PolicyName, some, takes
from jaxserve.scheduling.registry import takers
from jaxserve.scheduling.registry import takes as policy_takes
from models.errors import MOST as MOST_COUNT
from models.errors import UserError

BUDGET = 512  # tokens of a step, where nothing is said


class Chunk(click.ParamType):
    """Rows and tokens of the largest prefill program, such as 8x256."""

    name = "ROWSxTOKENS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        rows, _, query = str(value).partition("x")
        if not (rows.isdecimal() and query.isdecimal() and 1 <= int(rows) <= 12 and int(query) >= 2):
            raise UserError(f"--chunk is {value!r}; give rows from 1 to 12 and tokens from 2, such as 8x256")
        return int(rows), int(query)


@click.command(epilog="Example: python -m jaxserve.buckets --trace azure_2023_conv.csv --programs 12 --out ladder.json")
@takes(
    click.option("--trace", type=Path, required=True, help="Azure CSV or Mooncake JSONL."),
    some(DEPLOYMENT, ["model"]),
    click.option("--chip", default="h100", show_default=True, help="A name (python -m costmodel chips); host is this machine."),
    click.option(
        "--programs", type=click.IntRange(1, MOST_COUNT), default=12, show_default=True, help="Compile so many at most."
    ),
    click.option("--policy", type=PolicyName(), default="continuous", show_default=True, help="Scheduling policy."),
    click.option("--rows", type=click.IntRange(1, 256), default=64, show_default=True, help="Sequences at once."),
    some(DEPLOYMENT, ["page"]),
    click.option(
        "--pages", type=click.IntRange(1, MOST_COUNT), help="Of the pool. Default: 90 % of the memory that weights leave."
    ),
    click.option(
        "--chunk",
        type=Chunk(),
        default="8x256",
        show_default=True,
        help="The largest prefill; fewer rows where no step has as many.",
    ),
    click.option(
        "--budget", type=click.IntRange(1, MOST_COUNT), help="Tokens of a step: chunked, disaggregated. Default: 512."
    ),
    click.option("--attention", type=click.Choice(("blockwise", "gather")), default="blockwise", show_default=True),
    click.option(
        "--prefix-cache",
        "prefix",
        is_flag=True,
        help="Keep the KV of prompts and share equal beginnings (Mooncake's hash_ids).",
    ),
    click.option("--requests", "served", type=click.IntRange(1, MOST_COUNT), help="Of the trace. Default: all."),
    click.option(
        "--time-scale", type=float, default=1.0, show_default=True, help="Arrivals times this; 0.5 is twice the rate."
    ),
    click.option("--length-scale", type=float, default=1.0, show_default=True, help="Prompts and answers times this."),
    some(DEPLOYMENT, ["dtype", "kv_dtype"]),
    click.option(
        "--prompts", type=cli.Numbers(), default=(4096, 4109), help="Lengths to show padding for. [default: 4096,4109]"
    ),
    JSON,
    click.option("--out", type=Path, help="Write the ladder there, for the engine."),
)
def main(as_json: bool, out: Path | None, budget: int | None, **options: Any) -> None:
    """Simulate a trace and choose the programs on which its steps waste least on padding."""
    if budget is not None and not policy_takes(policy := options["policy"], "budget"):
        raise UserError(
            f"--budget is given, but a {policy} policy has none; leave it out, or take {' or '.join(takers('budget'))}"
        )
    check_out(out, "ladder.json")
    with cli.importing():
        from jaxserve.bucketing.study import BucketingSpec, study
        from jaxserve.bucketing.tables import output
    with cli.Bars() as bars:
        found = study(BucketingSpec(**options, budget=budget or BUDGET), bars.bar)
    write_out(out, found.best.ladder.to_json())
    output(found, as_json).print()


if __name__ == "__main__":
    cli.run(main)
