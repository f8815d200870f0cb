"""The workload of `bench_engine` on the virtual clock: what policies, and the token budget of a chunked one, come to before they are run.

Step times are those of this machine's engine, as `python -m jaxserve.calibrate --out` fitted them, for the very programs that the bench
compiles. So a budget can be chosen in seconds, and the run that follows shows how far the model was right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from costmodel.hardware.host import host_key, today
from costmodel.terminal import cli
from costmodel.terminal.tables import Table
from jaxserve.calibration.machine import Machine
from jaxserve.kv.layout import KVLayout
from jaxserve.load.percentile import RULE, percentile
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.simulator.records import simulated
from jaxserve.version import version
from models.checkpoint.sources import open_checkpoint
from models.config.model_config import ModelConfig
from scripts.engine_ours import PAGE, ladder, policy_of
from scripts.options import whole
from scripts.workload import Workload
from scripts.workload_options import workload_options


def choices(rows: int, budgets: tuple[int, ...]) -> Iterator[tuple[str, str, Policy]]:
    """(name of the row, policy by the bench's name, policy): static, continuous, and chunked with each budget."""
    for name in ("static", "continuous"):
        yield name, name, policy_of(name, rows, rows)
    for budget in budgets:
        yield f"chunked, {budget} tokens a step", "chunked", policy_of("chunked", rows, budget)


def served(machine: Machine, config: ModelConfig, kind: str, policy: Policy, workload: Workload, rows: int) -> dict[str, Any]:
    """What a policy makes of a workload, in plain data; ITL is null where every answer has one token."""
    predictor = machine.predictor(config, ladder(kind, rows, workload.longest))
    requests = [Request(i, item.prompt, item.output, item.arrival) for i, item in enumerate(workload.items)]
    records = simulated(policy, State.of(KVLayout(workload.room(rows, PAGE), PAGE).memory()), requests, predictor)
    seconds = max(record.end for record in records)
    gaps = np.concatenate([np.diff(record.tokens) for record in records])
    half, tail = ((None if math.isnan(found := percentile(gaps, q)) else found * 1e3) for q in (50, 99))
    known, ones = workload.prompt_tokens // len(workload.items), (1,) * rows
    whole = predictor(Plan(0, 0, tuple(range(rows)), (known,) * rows, ones, ones, ((),) * rows)) * 1e3
    return {
        "seconds": seconds,
        "useful": workload.output_tokens / seconds,
        "itl_median_ms": half,
        "itl_p99_ms": tail,
        "pure_decode_ms": whole,
        "itl_p99_over_pure_decode": None if tail is None else tail / whole,
    }


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """A line a policy."""
    shown = Table(title="The same requests (simulated, with step times calibrated on this machine)")
    for name in (
        "policy",
        "s",
        "tokens/s of answers",
        "over static",
        "ITL median, ms",
        "ITL P99, ms",
        "over a pure decode step",
    ):
        shown.add_column(name, justify="left" if name == "policy" else "right")
    for name, one in found.items():
        gaps = [f"{one[key]:,.0f}" if one[key] is not None else "-" for key in ("itl_median_ms", "itl_p99_ms")]
        ratio = one["itl_p99_over_pure_decode"]
        over = f"{one['useful'] / found['static']['useful']:.2f}"
        shown.add_row(
            name, f"{one['seconds']:.1f}", f"{one['useful']:.1f}", over, *gaps, "-" if ratio is None else f"{ratio:.2f}"
        )
    return shown


@click.command(
    epilog="Example: python -m scripts.simulated_bench --machine machine.json --trace azure_2023_conv.csv --budgets 72,80,96,128"
)
@click.option("--machine", type=Path, required=True, help="As jaxserve.calibrate --out wrote it.")
@workload_options
@click.option("--rows", type=whole(), default=64, show_default=True, help="Requests in a step.")
@click.option(
    "--budgets", type=cli.Numbers(), default="80,96,112,128", show_default=True, help="Tokens of a step under chunked."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(*, machine: Path, trace: Path | None, rows: int, budgets: tuple[int, ...], as_json: bool, **draw: Any) -> None:
    """Simulate the bench's policies, and budgets of the chunked one, with this machine's calibrated steps."""
    calibrated, found = Machine.read(machine), dict[str, dict[str, Any]]()
    policies = list(choices(rows, budgets))
    checkpoint = open_checkpoint(calibrated.model)
    workload = Workload.of(trace, checkpoint.tokenizer(), **draw)
    with cli.Bars() as bars:
        advance = bars.bar("simulating", len(policies))
        for name, kind, policy in policies:
            found[name] = served(calibrated, checkpoint.config, kind, policy, workload, rows)
            advance(1)
    facts = {
        "model": calibrated.model,
        "dtype": calibrated.dtype,
        "machine": host_key(),
        "date": today(),
        "jaxserve": version(),
    }
    if as_json:
        print(
            json.dumps(
                {"witness": "simulated", **facts, "workload": workload.to_json(), "rows": rows, "policies": found}, indent=1
            )
        )
        return
    console = Console(width=None if Console().is_terminal else 150, highlight=False)
    drawn = f"{workload.prompt_tokens:,} prompt and {workload.output_tokens:,} answer tokens, the longest sequence {workload.longest}"
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))
    console.print(f"{len(workload.items)} requests from {workload.source}, {rows} rows: {drawn}")
    console.print(table(found))
    step = f"A pure decode step is one of all {rows} rows, each with a prompt of the mean length in the cache, and nothing beside them."
    console.print(f"Percentiles: {RULE}. {step}")


if __name__ == "__main__":
    cli.run(main)
