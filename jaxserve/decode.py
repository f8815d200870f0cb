"""The main job: decode a batch of prompts together and say, for each compiled program, what it should cost and what it took."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
from rich.console import Console

from costmodel.host import host_key, today
from costmodel.measure import Ceilings, ceilings
from jaxserve import cli
from jaxserve.generate import Generation, Row, make_rows, pages_needed
from jaxserve.ladder import Bucket, Ladder, powers
from jaxserve.model import DTYPES, Model, check_memory, choose_dtype, load_model, pool_bytes, read_config
from jaxserve.programs import Program, compile_programs
from jaxserve.prompts import builtin_prompts, read_prompts
from jaxserve.report import ProgramReport, programs_json, programs_table, report, table
from jaxserve.sampling import SamplingParams
from models.checkpoint.sources import DEFAULT_MODEL, open_checkpoint
from models.errors import UserError
from models.tokenizer import Tokenizer

CHUNK = 256  # tokens of a prefill step


class Batches(click.ParamType):
    """1 or 1,8,64."""

    name = "N[,N...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            sizes = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            raise UserError(f"--batch is {value!r}; give a number of rows or several, such as 1,8,64") from None
        if min(sizes) < 1:
            raise UserError(f"--batch is {min(sizes)}; it must be at least 1")
        return sizes


@dataclasses.dataclass(frozen=True)
class Run:
    """The result of one batch size."""

    batch: int
    rows: list[Row]
    reports: list[ProgramReport]
    decode_tokens_per_second: float
    prefill_tokens_per_second: float


@click.command(epilog="Example: python -m jaxserve.decode --batch 1,8,64 --max-new-tokens 32")
@click.option(
    "--batch", "batches", type=Batches(), default="64", show_default=True, help="Rows decoded together; several sweep."
)
@click.option(
    "--model", default=DEFAULT_MODEL, show_default=True, help="smollm2, a folder, a .gguf file, a Hub name or random:PRESET."
)
@click.option("--prompt-file", type=Path, help="One prompt a line, or JSONL with a key prompt. Default: 64 built-in ones.")
@click.option("--max-new-tokens", type=int, default=64, show_default=True, help="Tokens to generate for each prompt at most.")
@click.option("--context", type=int, help="Tokens of the longest sequence. Default: what the prompts need.")
@click.option(
    "--dtype", default="auto", show_default=True, help=f"Of the weights: auto (the fastest here), {', '.join(DTYPES)}."
)
@click.option("--kv-dtype", help="Of the KV pool. Default: the weights'.")
@click.option("--page-size", type=int, default=16, show_default=True, help="Tokens of a KV page.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sampling, and of random weights' prompts.")
@click.option("--compile-cache", type=Path, help="Folder in which compiled programs are kept for the next start.")
@click.option("--show", type=int, default=3, show_default=True, help="Completions to print.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, for machines.")
def main(batches: tuple[int, ...], model: str, prompt_file: Path | None, max_new_tokens: int, context: int | None, dtype: str,
         kv_dtype: str | None, page_size: int, temperature: float, seed: int, compile_cache: Path | None, show: int,
         as_json: bool) -> None:  # fmt: skip
    """Decode a batch of prompts together, with the cost of every compiled program: modelled, compiled and measured."""
    if max_new_tokens < 1:
        raise UserError(f"--max-new-tokens is {max_new_tokens}; it must be at least 1")
    if page_size < 1:
        raise UserError(f"--page-size is {page_size}; a KV page holds at least 1 token")
    if context is not None and context < 1:
        raise UserError(f"--context is {context}; it must be at least 1")
    sampling = SamplingParams(temperature=temperature, seed=seed)
    if kv_dtype not in (None, *DTYPES):
        raise UserError(f"--kv-dtype {kv_dtype!r} is not supported; give {' or '.join(DTYPES)}")
    if compile_cache:
        jax.config.update("jax_compilation_cache_dir", str(compile_cache))
    config = read_config(model)
    tokenizer = open_checkpoint(model).tokenizer()
    prompts = [encode(tokenizer, text) for text in (read_prompts(prompt_file) if prompt_file else builtin_prompts())]
    largest = max(batches)
    prompts = [prompts[i % len(prompts)] for i in range(largest)]
    longest = max(map(len, prompts)) + max_new_tokens - 1
    context = context or min(longest, config.max_positions)
    make_rows(prompts, max_new_tokens, [sampling] * largest, tokenizer.eos_tokens, context=context, page=page_size)
    with cli.Bars() as bars:
        chosen, why = choose_dtype(dtype, largest)
        stored = kv_dtype or chosen
        pages = sum(pages_needed(len(p), max_new_tokens, page_size) for p in prompts)
        workspace = 2 * 4 * largest * config.vocab_size + 4 * CHUNK * (config.vocab_size + 3 * config.ffn)
        check_memory(config, chosen, pool_bytes(config, pages, page_size, stored), workspace)
        limits = ceilings()
        engine = load_model(model, dtype=chosen, context=context, progress=_loading(bars, model, chosen))
        ladder = make_ladder(prompts, batches, context, page_size)
        pool = engine.empty_pool(pages, page_size, stored)
        buckets = ladder.buckets()
        compiled = bars.bar("compiling programs", len(buckets))
        programs = compile_programs(engine.step, engine.serving, pool, buckets, done=lambda _: compiled(1))
        runs = []
        for batch in batches:
            rows = make_rows(
                prompts[:batch], max_new_tokens, [sampling] * batch, tokenizer.eos_tokens, context=context, page=page_size
            )
            generation = Generation(rows, ladder, programs, pool)
            generation.prefill(bars.bar(f"batch {batch}: prefill, tokens", sum(len(r.prompt) for r in rows)))
            generation.decode(bars.bar(f"batch {batch}: decode, tokens at most", batch * (max_new_tokens - 1)))
            pool = generation.pool
            runs.append(summarise(batch, generation, engine, stored, limits))
    facts = {"model": model, "date": today(), "machine": host_key(), "python": platform.python_version(), "jax": jax.__version__,
             "dtype": chosen, "dtype_reason": why, "kv_dtype": stored, "page_size": page_size, "context": context}  # fmt: skip
    if as_json:
        print(json.dumps(to_json(facts, limits, list(programs), runs, tokenizer), indent=1))
    else:
        show_all(facts, limits, list(programs), runs, tokenizer, show)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """A prompt as a chat turn where the model has a template, else as plain text."""
    return tokenizer.encode_chat([{"role": "user", "content": text}]) if tokenizer.chat_template else tokenizer.encode(text)


def _loading(bars: cli.Bars, model: str, dtype: str) -> Any:
    from jaxserve.model import weight_bytes

    return bars.bar(f"loading {model}, bytes", weight_bytes(read_config(model), dtype)[1])


def make_ladder(prompts: Sequence[list[int]], batches: Sequence[int], context: int, page: int) -> Ladder:
    """The buckets that this run can reach: every power of two below the largest batch, each batch itself, and one prefill chunk."""
    query = min(CHUNK, powers(max(map(len, prompts)))[-1])
    rows = max(1, min(CHUNK // query, max(batches)))
    sizes = {*batches, *(size for size in powers(max(batches)) if size < max(batches))}
    return Ladder(tuple(sorted(sizes)), (-(-context // page),), (rows, query), page)


def summarise(batch: int, generation: Generation, engine: Model, kv_dtype: str, limits: Ceilings) -> Run:
    """Totals over all steps, decode and prefill apart."""
    itemsize = jnp.dtype(kv_dtype).itemsize
    prefill = [r for r in generation.records if r.program.bucket == Bucket((generation.ladder.chunk,), r.program.bucket.width)]
    decode = [r for r in generation.records if r not in prefill]

    def rate(records: list[Any]) -> float:
        return sum(r.tokens for r in records) / sum(r.seconds + r.host_seconds for r in records) if records else 0.0

    return Run(batch, generation.rows, report(generation.records, engine, itemsize, limits), rate(decode), rate(prefill))


def to_json(
    facts: dict[str, Any], limits: Ceilings, programs: list[Program], runs: list[Run], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Everything, with the source of each figure in its key or in the docstring of `ProgramReport`."""
    return {
        **facts,
        "measured_ceilings": dataclasses.asdict(limits),
        "programs": programs_json(programs),
        "runs": [
            {
                "batch": run.batch,
                "measured_decode_tokens_per_second": run.decode_tokens_per_second,
                "measured_prefill_tokens_per_second": run.prefill_tokens_per_second,
                "programs": [dataclasses.asdict(r) for r in run.reports],
                "completions": [
                    {
                        "prompt_tokens": len(r.prompt),
                        "tokens": r.output,
                        "text": tokenizer.decode(r.output),
                        "finish_reason": r.reason,
                    }
                    for r in run.rows
                ],
            }
            for run in runs
        ],
    }


def show_all(
    facts: dict[str, Any], limits: Ceilings, programs: list[Program], runs: list[Run], tokenizer: Tokenizer, show: int
) -> None:
    """Completions, what was compiled, and a table for each batch size."""
    console = Console(width=None if Console().is_terminal else 150, highlight=False)
    for row in runs[-1].rows[:show]:
        stop = {*tokenizer.eos_tokens}
        console.print(f"[bold]prompt[/]  {tokenizer.decode(row.prompt)!r}", markup=True)
        console.print(f"[bold]answer[/]  {tokenizer.decode([t for t in row.output if t not in stop])!r} ({row.reason})\n")
    console.print(programs_table(programs))
    console.print(
        f"\n{facts['model']} on {facts['machine']}, {facts['date']}; weights {facts['dtype']} ({facts['dtype_reason']}), KV "
        f"{facts['kv_dtype']}\nmeasured ceilings ({limits.date}): read {limits.read_bandwidth / 1e9:.1f} GB/s, matmul f32 "
        f"{limits.matmul_f32 / 1e9:.0f} and bf16 {limits.matmul_bf16 / 1e9:.0f} GFLOP/s\n"
    )
    for run in runs:
        console.print(table(run.reports, f"batch {run.batch}: decode {run.decode_tokens_per_second:,.0f} tokens/s, prefill "
                            f"{run.prefill_tokens_per_second:,.0f} tokens/s (measured)"))  # fmt: skip


if __name__ == "__main__":
    cli.run(main)
