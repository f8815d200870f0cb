"""What `batch_invariant` costs on this machine: the same requests through an engine of many shapes and one of a single shape, in turns."""

from __future__ import annotations

import json
import statistics
import time

import click

from costmodel.hardware.host import host_key, today
from costmodel.terminal import cli
from costmodel.terminal.tables import Table, console
from jaxserve.llm import LLM
from jaxserve.sampling_params import SamplingParams
from scripts.options import whole

SHAPES = ((16, 48), (384, 1))  # tokens of a prompt and of its answer: mostly decode, and all prefill


@click.command(epilog="Example: python -m scripts.invariant_price --rows 1,8,32 --rounds 3")
@click.option("--model", default="smollm2", show_default=True, help="As of jaxserve.decode.")
@click.option("--dtype", default="bfloat16", show_default=True, help="Of the weights.")
@click.option("--rows", "batches", type=cli.Numbers(), default="1,8,32", show_default=True, help="Requests at once.")
@click.option("--rounds", type=whole(), default=3, show_default=True, help="Interleaved, after one that warms up.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(model: str, dtype: str, batches: tuple[int, ...], rounds: int, as_json: bool) -> None:
    """Serve the same requests with and without --batch-invariant, in turns."""
    rows, context = max(batches), max(map(sum, SHAPES))
    cases = [(prompt, answer, batch) for prompt, answer in SHAPES for batch in batches]
    found: dict[bool, list[list[float]]] = {kind: [[] for _ in cases] for kind in (False, True)}
    with cli.Bars() as bars:
        engines = {
            kind: LLM(model, dtype=dtype, rows=rows, context=context, prefix_cache=False, batch_invariant=kind)
            for kind in (False, True)
        }
        measured = bars.bar("measuring", (rounds + 1) * len(cases) * 2)
        for number in range(rounds + 1):
            for case, (prompt, answer, batch) in enumerate(cases):
                for kind, llm in engines.items():
                    prompts = [[1 + (i + at) % 200 for at in range(prompt)] for i in range(batch)]
                    start = time.perf_counter()
                    llm.generate(prompts, SamplingParams(max_tokens=answer, ignore_eos=True))
                    if number:
                        found[kind][case].append(time.perf_counter() - start)
                    measured(1)
    facts = {"machine": host_key(), "date": today(), "model": model, "dtype": dtype, "rows": rows}
    ratios = [statistics.median(slow) / statistics.median(quick) for quick, slow in zip(*found.values(), strict=True)]
    if as_json:
        lines = [
            {"prompt": prompt, "answer": answer, "requests": batch, "seconds": quick, "seconds_invariant": slow, "ratio": ratio}
            for (prompt, answer, batch), quick, slow, ratio in zip(cases, *found.values(), ratios, strict=True)
        ]
        click.echo(json.dumps({"witness": "measured", **facts, "cases": lines}))
        return
    shown = console()
    shown.print(f"{model} in {dtype} on {facts['machine']}, {facts['date']}; {rows} rows; measured, {rounds} rounds in turns")
    table = Table("prompt tokens", "answer tokens", "requests", "s", "s invariant", "ratio of medians", title="batch_invariant")
    for case, quick, slow, ratio in zip(cases, *found.values(), ratios, strict=True):
        times = [", ".join(f"{second:.2f}" for second in seconds) for seconds in (quick, slow)]
        table.add_row(*map(str, case), *times, f"{ratio:.2f}")
    shown.print(table)


if __name__ == "__main__":
    cli.run(main)
