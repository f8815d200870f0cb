"""How prompts are best cut on this machine: tokens a second through prefill programs of different shapes.

Pieces of several prompts lie side by side, as the engine packs them, so what a shape loses is the last piece of each prompt, which is
padded; and what it wins by long pieces is that each of them reads the K and V before it once.
"""

from __future__ import annotations

import json
import time

import click
import numpy as np
from rich.console import Console

from costmodel.hardware.host import host_key, today
from costmodel.terminal import cli
from costmodel.terminal.tables import Table
from jaxserve.engine.model import load_model
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.dispatch import cut
from jaxserve.programs.program_set import Program, blank, compile_programs
from jaxserve.programs.progress import Compiling
from jaxserve.programs.step import Work
from models.layers import KV
from scripts.options import whole

PAGE = 16
SHAPES = ((4, 64), (8, 32), (16, 16), (32, 16), (2, 128))  # pieces x tokens


def packed(bucket: Bucket, prompt: int, tokens: int, units: int) -> tuple[list[tuple[Work, ...]], int]:
    """(the work of each program, live tokens): as many prompts of one length as make up `tokens`, at least one."""
    ((rows, query),) = bucket.shape
    pieces = [piece for row in range(max(tokens // prompt, 1)) for piece in cut(0, prompt, query, row)]
    programs = []
    for at in range(0, len(pieces), rows):
        work = blank(bucket, units)
        segment = work[0].segment
        for i, piece in enumerate(pieces[at : at + rows]):
            segment.start[i], segment.count[i] = piece.start, piece.tokens
            segment.table[i] = piece.row * bucket.width + np.arange(bucket.width)
        programs.append(work)
    return programs, sum(piece.tokens for piece in pieces)


def rate(program: Program, kv: KV, prompt: int, tokens: int) -> tuple[KV, float]:
    """(the pool, tokens a second), measured."""
    programs, live = packed(program.bucket, prompt, tokens, kv.units)
    start = time.perf_counter()
    for work in programs:
        kv, (output,) = program(kv, work)
    np.asarray(output.tokens)
    return kv, live / (time.perf_counter() - start)


@click.command(epilog="Example: python -m scripts.prefill_shapes --prompts 80,512 --rounds 4")
@click.option("--model", default="smollm2", show_default=True, help="As of jaxserve.decode.")
@click.option("--prompts", type=cli.Numbers(), default="80,512", show_default=True, help="Lengths of prompts.")
@click.option("--tokens", type=whole(), default=512, show_default=True, help="Of all prompts of a run together.")
@click.option("--rounds", type=whole(), default=4, show_default=True, help="Interleaved, after one that warms up.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(model: str, prompts: tuple[int, ...], tokens: int, rounds: int, as_json: bool) -> None:
    """Measure prefill programs of several shapes on prompts of several lengths."""
    context = max(prompts)
    served = load_model(model, dtype="float32", context=context)
    width = -(-context // PAGE)
    kv: KV = served.empty_pool(max(tokens // min(prompts), 1) * width, PAGE, "float32")
    buckets = [Bucket((shape,), width) for shape in SHAPES]
    found: dict[str, dict[str, list[float]]] = {bucket.name: {str(prompt): [] for prompt in prompts} for bucket in buckets}
    with cli.Bars() as bars:
        programs = compile_programs(served.step, served.serving, kv, buckets, done=Compiling(bars.bar, buckets))
        measured = bars.bar("measuring", (rounds + 1) * len(prompts) * len(buckets))
        for number in range(rounds + 1):
            for prompt in prompts:
                for program in programs:
                    kv, tokens_per_second = rate(program, kv, prompt, tokens)
                    measured(1)
                    if number:
                        found[program.bucket.name][str(prompt)].append(tokens_per_second)
    facts = {"machine": host_key(), "date": today(), "model": model, "dtype": "float32", "tokens": tokens}
    if as_json:
        print(json.dumps({**facts, "measured_tokens_per_second": found}))
        return
    table = Table(title="tokens of prompts a second (measured; a value a round)")
    for name in ("program", *(f"prompts of {prompt}" for prompt in prompts)):
        table.add_column(name)
    for name, rates in found.items():
        table.add_row(name, *(", ".join(f"{each:.0f}" for each in values) for values in rates.values()))
    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))
    console.print(table)


if __name__ == "__main__":
    cli.run(main)
