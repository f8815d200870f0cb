"""Serve many prompts at once and stream their answers, under any policy.

Only the command line stands here. JAX and all that needs it is imported once the options are known to be sound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from jaxserve.engine.config import EngineConfig
from jaxserve.generation.prompts import read_prompts
from jaxserve.kv.layout import KINDS
from jaxserve.programs.compile_cache import cache_options
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.names import POLICIES
from models.errors import UserError

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed",
            "logit_bias", "max_tokens", "min_tokens", "stop", "stop_ids", "ignore_eos", "n", "logprobs", "prompt_logprobs")  # fmt: skip


class Bias(click.ParamType):
    """One entry of `SamplingParams.logit_bias`, which checks the numbers themselves."""

    name = "TOKEN=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        token, _, amount = str(value).partition("=")
        try:
            return int(token), float(amount)
        except ValueError:
            raise UserError(
                f"--logit-bias is {value!r}; give a token id and what is added to its logit, such as 42=-5"
            ) from None


@click.command(epilog="Example: python -m jaxserve.generate --policy continuous --prompts prompts.txt --max-tokens 64")
@click.option("--prompts", "prompt_file", type=Path, required=True, help="One prompt a line, or JSONL with a key prompt.")
@click.option("--raw", is_flag=True, help="Go on with prompts as they stand. Default: turns of a chat, with a template.")
@click.option(
    "--model", default="smollm2", show_default=True, help="smollm2, a folder, a .gguf file, a Hub name or random:PRESET."
)
@click.option("--dtype", default="auto", show_default=True, help="Of the weights: auto (the fastest here), float32, bfloat16.")
@click.option("--kv-dtype", help="Of the KV pool. Default: the weights'.")
@click.option("--layers", default="auto", show_default=True, help="unrolled, scanned, or auto: scanned on a TPU.")
@click.option(
    "--policy",
    metavar=f"[{'|'.join(POLICIES)}|MODULE:NAME]",
    default="continuous",
    show_default=True,
    help="Who runs when. MODULE:NAME is one of your own: docs/policy.md.",
)
@click.option("--rows", type=int, help="Sequences at once, on each worker. Default: 64, or what the ladder has.")
@click.option("--context", type=int, help="Tokens of the longest sequence. Default: what the prompts need.")
@click.option("--multi-step", type=int, default=1, show_default=True, help="Tokens drawn in one step while nobody waits.")
@click.option("--prefill-tokens", type=int, help="Prompt tokens admitted and not yet run, at most.")
@click.option("--budget", type=int, help="Tokens of a step: chunked, disaggregated.")
@click.option("--delay", type=float, help="s to wait for company: dynamic.")
@click.option("--preferred", type=cli.Numbers(), help="Batch sizes that leave at once: dynamic.")
@click.option("--prefill-workers", type=int, help="Disaggregated. Default: 1.")
@click.option("--decode-workers", type=int, help="Disaggregated. Default: 1.")
@click.option("--link", type=float, help="GB/s between workers: disaggregated. Default: 10.")
@click.option("--queue-size", type=int, help="Requests that wait in the engine; the rest wait outside.")
@click.option("--queue-timeout", type=float, help="s after which a request that still waits is dropped.")
@click.option("--kv", type=click.Choice(KINDS), default="paged", show_default=True, help="Where KV lives.")
@click.option("--page-size", type=int, help="Tokens of a KV page. Default: 16.")
@click.option("--pages", type=int, help="Of each worker's pool; slots where KV is contiguous. Default: enough, if memory is.")
@click.option("--prefix-cache/--no-prefix-cache", default=None, help="Find known beginnings again. Default: with pages.")
@click.option("--speculate", type=click.Choice(["ngram"]), help="Draft tokens by prompt lookup.")
@click.option("--drafts", type=int, help="Tokens drafted at most. Default: 4.")
@click.option("--batch-invariant", is_flag=True, help="No answer depends on its batch, in 16 bits too; slower.")
@click.option("--ladder", type=Path, help="Programs to compile, from python -m jaxserve.buckets. Default: powers of two.")
@click.option("--max-tokens", type=int, default=128, show_default=True, help="Of an answer.")
@click.option("--min-tokens", type=int, default=0, help="Before an answer may end.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=float, default=1.0, help="Draw from the likeliest tokens with this probability together.")
@click.option("--top-k", type=int, default=0, help="Draw from so many.")
@click.option("--min-p", type=float, default=0.0, help="Draw from those with this share of the likeliest one's probability.")
@click.option("--repetition-penalty", type=float, default=1.0, help="Of tokens that were there. 1: none.")
@click.option("--presence-penalty", type=float, default=0.0, help="Of tokens of the answer, once.")
@click.option("--frequency-penalty", type=float, default=0.0, help="Of tokens of the answer, each time.")
@click.option(
    "--logit-bias", type=Bias(), multiple=True, help="Added to a token's logit; -100 forbids it, 100 allows no other."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first prompt; each next one's is 1 more.")
@click.option("--stop", multiple=True, help="A text that ends an answer. Several times for several.")
@click.option("--stop-id", "stop_ids", type=int, multiple=True, help="A token that does.")
@click.option("--ignore-eos", is_flag=True, help="The model's own end tokens don't.")
@click.option("--n", type=int, default=1, show_default=True, help="Answers for each prompt.")
@click.option("--logprobs", type=int, help="Log-probabilities of tokens, with so many alternatives. Shown with --json.")
@click.option("--prompt-logprobs", type=int, help="The same of the prompt's tokens, all of which are then run.")
@cache_options
@click.option("--log", type=Path, help="Write every decision there, for python -m jaxserve.replay.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines: one for each prompt as it ends, the last a summary.")
def main(prompt_file: Path, raw: bool, as_json: bool, **options: Any) -> None:
    """Serve all prompts of a file at once: answers as they grow or end, then what the run took, step by step.

    After Ctrl-C, SIGTERM or SIGHUP it exits with 2; answers as far as they came are printed, and end with abort.
    """
    params = SamplingParams(**{name: options.pop(name) for name in SAMPLING})
    settings = EngineConfig(**options)
    texts = read_prompts(prompt_file)
    if settings.log and Path(settings.log).exists() and Path(settings.log).samefile(prompt_file):
        raise UserError(f"--log {settings.log} is the file of --prompts and would be written over; give another name")

    with cli.importing():
        from jaxserve.generation.display import JsonLines, Printed  # see above
        from jaxserve.generation.session import Session

    with cli.Bars() as bars:
        session = Session.begin(settings, params, texts, bars.bar, raw=raw)
    results = session.run(JsonLines() if as_json else Printed())
    if results.interrupted:
        counts = f"{results.answered} of {results.asked} prompts"
        click.echo(f"error: {results.cut} when {counts} had their answers; those of the others end with abort", err=True)
        raise click.exceptions.Exit(2)


if __name__ == "__main__":
    cli.run(main)
