"""Where the time of one compiled decode step goes: XLA's own trace of it, by component of the model.

Each instruction that XLA times is found in the program's ledger, which knows the component that it works for. An instruction counts
with what the ones within it do not take, so that the parts of a thread add up; where several threads run instructions side by side,
the parts add up to more than the step. The tracing itself costs time too, so the step is timed without it as well.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
from rich.console import Console

from costmodel.hardware.clock import Clock, RunQueue
from costmodel.hardware.host import host_key, today
from costmodel.terminal import cli
from costmodel.terminal.tables import Table
from jaxserve.engine.model import load_model
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.memory import MemoryNeed, pool_bytes
from jaxserve.programs.program_set import blank, compile_programs
from jaxserve.values import DTYPES
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from models.layers import KV
from scripts.options import whole

PAGE, WARM_UP = 16, 3
Event = tuple[Any, str, float, float]  # thread, name, start and duration in microseconds


def own_times(events: Iterable[Event]) -> dict[str, float]:
    """Microseconds of each name over all threads, without what other events within it on the same thread take."""
    own: dict[str, float] = {}
    around: list[tuple[Any, str, float]] = []  # thread, name and end of the events that the next one may lie in
    for thread, name, start, duration in sorted(events, key=lambda e: (str(e[0]), e[2], -e[3])):
        while around and (around[-1][0] != thread or around[-1][2] <= start):
            around.pop()
        if around:
            own[around[-1][1]] -= duration
        own[name] = own.get(name, 0.0) + duration
        around.append((thread, name, start + duration))
    return own


def by_component(events: Iterable[Event], components: Mapping[str, str]) -> dict[str, float]:
    """Microseconds of each component, the largest first; events that are no instruction of the program do not count."""
    parts: dict[str, float] = {}
    for name, taken in own_times(event for event in events if event[1] in components).items():
        part = components[name] or "other"
        parts[part] = parts.get(part, 0.0) + taken
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def read_trace(folder: Path) -> list[Event]:
    """The timed events of the one trace in a folder."""
    (path,) = folder.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [((e["pid"], e["tid"]), e["name"], e["ts"], e["dur"]) for e in events if e.get("ph") == "X"]


@click.command(epilog="Example: python -m scripts.profile_step --batch 64 --kv-dtype bfloat16")
@click.option("--model", default="smollm2", show_default=True, help="As of jaxserve.decode; random:PRESET needs no weights.")
@click.option("--batch", type=whole(), default=64, show_default=True, help="Rows of the step.")
@click.option("--context", type=whole(), default=160, show_default=True, help="Tokens in the cache of every row.")
@click.option("--steps", type=whole(), default=10, show_default=True, help="Steps that are timed, and then traced.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Of the weights.")
@click.option("--kv-dtype", type=click.Choice(DTYPES), help="Of the KV pool. Default: the weights'.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(model: str, batch: int, context: int, steps: int, dtype: str, kv_dtype: str | None, as_json: bool) -> None:
    """Say which part of the model a decode step spends its time on."""
    stored, width = kv_dtype or dtype, -(-context // PAGE)
    checkpoint = open_checkpoint(model)
    size = pool_bytes(checkpoint.config, batch * width, PAGE, stored)
    need = MemoryNeed.of(checkpoint, dtype, pool=size, rows=batch, chunk=0, programs=1)
    need.check("this run", dtype, "--batch or --context", "--")
    served = load_model(model, dtype=dtype, context=context, checkpoint=checkpoint)
    pool: KV = served.empty_pool(batch * width, PAGE, stored)
    bucket = Bucket(((batch, 1),), width)
    program = compile_programs(served.step, served.serving, pool, [bucket])[bucket]
    work = blank(bucket, pool.units)
    segment = work[0].segment
    segment.count[:], segment.start[:] = 1, context - 1
    segment.table[:] = np.arange(batch * width).reshape(batch, width)

    def run(clock: Clock, count: int) -> None:
        nonlocal pool
        for _ in range(count):
            with clock.lap():
                pool, (output,) = program(pool, work)
                np.asarray(output.tokens)

    run(Clock(), WARM_UP)
    plain, traced = Clock(), Clock()
    with RunQueue() as queue, tempfile.TemporaryDirectory() as folder:
        run(plain, steps)
        with jax.profiler.trace(folder):
            run(traced, steps)
        events = read_trace(Path(folder))
    book = program.ledger(program.trips([[(context, 1)] * batch]))
    parts = by_component(events, {line.name: line.component for line in book.lines})
    if not parts:
        raise UserError(
            f"XLA's trace on {jax.default_backend()} names no instruction of the program; profile the step on a CPU"
        )
    result = {
        "machine": host_key(), "date": today(), "model": model, "dtype": dtype, "kv_dtype": stored, "batch": batch,
        "context": context, "steps": steps, "contention": queue.contention, "step_ms": plain.timings.median * 1e3,
        "traced_step_ms": traced.timings.median * 1e3, "part_ms": {name: us / 1e3 / steps for name, us in parts.items()},
    }  # fmt: skip
    print(json.dumps(result, indent=1)) if as_json else show(result)


def show(result: Mapping[str, Any]) -> None:
    """For people."""
    parts, total = result["part_ms"], sum(result["part_ms"].values())
    title = (
        f"{result['model']} on {result['machine']}, {result['date']}; weights {result['dtype']}, KV {result['kv_dtype']}\n"
        f"batch {result['batch']}, context {result['context']}: {result['step_ms']:.1f} ms a step (median of {result['steps']}), "
        f"{result['traced_step_ms']:.1f} ms while traced; contention {result['contention'] or 0:.2f}"
    )
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    console.print(title)
    view = Table()
    for name in ("part", "ms a step (mean)", "share"):
        view.add_column(name, justify="left" if name == "part" else "right")
    for name, taken in parts.items():
        view.add_row(name, f"{taken:.2f}", f"{taken / total:.0%}")
    console.print(view)
    print("measured by XLA's trace; the component of each instruction is that of the program's ledger (docs/cost.md)")


if __name__ == "__main__":
    cli.run(main)
