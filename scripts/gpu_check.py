"""One command for a machine with a GPU: do its tokens agree with f32 on the CPU, and how near does a decode step come to its bandwidth?

The sweep times decode steps of a model with random weights whose rows all hold `--context` tokens. Nothing is prefilled: the time of a
step does not depend on what lies in the cache. Programs compile in threads, the largest first, while the tokens are compared.
"""

from __future__ import annotations

import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import click
import jax
from rich.console import Console

from costmodel.hardware.ceilings import Ceilings, ceilings
from costmodel.hardware.chips import Chip, chip_of_device
from costmodel.hardware.host import host_key, today
from costmodel.terminal import cli
from costmodel.terminal.tables import Table
from jaxserve.engine.model import load_model
from jaxserve.main_job.agreement import Agreement, compare_with_f32
from jaxserve.programs.memory import MemoryNeed, pool_bytes
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from scripts.gpu_sweep import PAGE, Point, Sweep
from scripts.options import Real, whole

RESERVE = 15.0  # seconds kept for measuring and printing when compilation takes too long
COLUMNS = (  # of the table: title, field of a point, unit, digits
    ("batch", "batch", 1, 0),
    ("compile s", "compile_seconds", 1, 1),
    ("ms/step", "step_ms", 1, 2),
    ("P95", "step_ms_p95", 1, 2),
    ("tokens/s", "tokens_per_second", 1, 0),
    ("nominal GB", "nominal_bytes", 1e9, 2),
    ("GB/s", "bytes_per_second", 1e9, 0),
    ("% of sheet", "of_data_sheet", 0.01, 1),
    ("% of measured", "of_measured", 0.01, 1),
    ("XLA GFLOP", "xla_flops", 1e9, 1),
    ("XLA GB", "xla_bytes", 1e9, 2),
    ("loops", "xla_loops", 1, 0),
    ("temp MB", "xla_temp_bytes", 1e6, 0),
)


def default_check_model() -> str:
    """Real weights where they are installed."""
    try:
        open_checkpoint("smollm2")
    except UserError:
        return "random:smollm2-135m"
    return "smollm2"


@click.command(epilog="Example: python -m scripts.gpu_check --json > gpu.json")
@click.option("--model", default="random:llama-3-8b", show_default=True, help="Swept; random:PRESET needs no download.")
@click.option("--batches", type=cli.Numbers(), default="1,2,4,8,16,32,64,128,256", show_default=True, help="Rows of each step.")
@click.option("--context", type=whole(), default=1024, show_default=True, help="Tokens in the cache of every row.")
@click.option("--steps", type=whole(), default=20, show_default=True, help="Timed steps of each batch size.")
@click.option("--dtype", type=click.Choice(["bfloat16", "float32"]), default="bfloat16", show_default=True)
@click.option(
    "--check-model",
    help="Whose tokens are compared with f32 on the CPU. Default: smollm2, or its shape where it is not installed.",
)
@click.option(
    "--check-rows",
    type=whole(0, 64),
    default=64,
    show_default=True,
    help="Prompts of the comparison, up to 64; 0 leaves it out.",
)
@click.option("--check-tokens", type=whole(), default=64, show_default=True, help="Tokens that each of them is continued by.")
@click.option("--limit-s", type=Real(), default=300.0, show_default=True, help="Seconds after which what is left is skipped.")
@click.option("--allow-cpu", is_flag=True, help="Go through all of it on a CPU.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(model: str, batches: tuple[int, ...], context: int, steps: int, dtype: str, check_model: str | None, check_rows: int,
         check_tokens: int, limit_s: float, allow_cpu: bool, as_json: bool) -> None:  # fmt: skip
    """Check a GPU: tokens against f32 on the CPU, and the bandwidth that decode steps achieve. Exits with 1 where tokens disagree."""
    end = time.monotonic() + limit_s
    sizes = batches
    device = jax.devices()[0]
    if device.platform != "gpu" and not allow_cpu:
        raise UserError(
            f"no GPU: JAX sees {device.platform} only; install jaxserve[cuda] on a machine with one, or pass --allow-cpu"
        )
    chip = chip_of_device(device.device_kind)
    checkpoint = open_checkpoint(model)
    config, rows = checkpoint.config, min(sizes)
    pool = pool_bytes(config, rows * -(-context // PAGE), PAGE, dtype)
    need = MemoryNeed.of(checkpoint, dtype, pool=pool, rows=rows, chunk=0, programs=len(sizes))
    need.check("this run", dtype, "--batch or --context", "--")
    check_model, compared = check_model or default_check_model(), None
    with cli.Bars() as bars:
        measured = bars.bar("measuring ceilings", 1)
        limits = ceilings()
        measured(1)
        served = load_model(model, dtype=dtype, context=context, checkpoint=checkpoint)
        sweep = Sweep(served, sizes, context)
        if check_rows > 0:
            comparing = bars.bar(f"comparing {check_model} with f32 on the CPU", 1)
            found = ThreadPoolExecutor(1).submit(compare_with_f32, check_model, check_rows, check_tokens, dtype)
            wait([found], timeout=max(end - time.monotonic() - RESERVE, 0))
            compared = found.result() if found.done() else None
            comparing(1)
        sweep.wait(end - time.monotonic() - RESERVE)
        points, advance = [], bars.bar("timing batch sizes", len(sizes))
        for size in sizes:
            late = time.monotonic() > end - RESERVE / 3
            points.append(Point(size, "the time limit was reached") if late else sweep.measure(size, steps, limits, chip))
            advance(1)
    facts = {"date": today(), "machine": host_key(), "device_kind": device.device_kind, "data_sheet": chip.name if chip else None,
             "model": model, "dtype": dtype, "context": context, "page_size": PAGE, "steps": steps,
             "check_model": check_model if compared else None}  # fmt: skip
    if as_json:
        agreed = dataclasses.asdict(compared) | {"holds": compared.holds} if compared else None
        print(json.dumps({**facts, "agreement": agreed, "measured_ceilings": dataclasses.asdict(limits),
                          "sweep": [dataclasses.asdict(point) for point in points]}, indent=1))  # fmt: skip
    else:
        show(facts, compared, limits, chip, points)
    if check_rows > 0 and not compared:
        raise UserError(
            f"tokens were not compared: f32 on this CPU takes longer than --limit-s {limit_s:g}, and what was timed ran beside it; "
            f"raise --limit-s, or lower --check-rows {check_rows}"
        )
    if compared and not compared.holds and not check_model.startswith("random:"):
        raise RuntimeError(f"{dtype} on {device.platform} and f32 on the CPU disagree: {compared}")


def show(facts: dict[str, Any], compared: Agreement | None, limits: Ceilings, chip: Chip | None, points: list[Point]) -> None:
    """For people."""
    console = Console(width=None if Console().is_terminal else 150, highlight=False)
    console.print(f"{facts['device_kind']} ({facts['machine']}), {facts['date']}")
    if compared:
        random = facts["check_model"].startswith("random:")
        judged = "random weights: not judged" if random else "holds" if compared.holds else "FAILS"
        console.print(
            f"{facts['check_model']} in {facts['dtype']} against f32 on the CPU: {compared.greedy_same} of {compared.greedy_tokens} "
            f"greedy tokens alike up to each prompt's first difference; teacher-forced at {compared.positions} positions: same top "
            f"token at {compared.same_top:.2%}, mean KL {compared.mean_kl:.2e} ({judged})"
        )
    sheet = f"{chip.name}: {chip.bandwidth / 1e12:.2f} TB/s" if chip else "no data sheet for this chip"
    title = (
        f"{facts['model']} in {facts['dtype']}, decode with {facts['context']} tokens in the cache of every row\n"
        f"{sheet}; measured read {limits.read_bandwidth / 1e9:,.0f} GB/s ({limits.date})"
    )
    view = Table(title=title)
    for name, *_ in COLUMNS:
        view.add_column(name, justify="right")
    for p in points:
        if not p.skipped:
            view.add_row(*(_number(getattr(p, field), unit, digits) for _, field, unit, digits in COLUMNS))
    console.print(view)
    console.print(
        "nominal: each weight and each row's KV read once; XLA counts the body of a loop once; unknown: XLA does not say"
    )
    for p in points:
        if p.skipped:
            console.print(f"batch {p.batch} skipped: {p.skipped}")


def _number(value: float | None, unit: float, digits: int) -> str:
    return "unknown" if value is None else f"{value / unit:,.{digits}f}"


if __name__ == "__main__":
    cli.run(main)
