"""Options that several commands share, each declared once: a command says which groups it takes, and has the others of its own.

A group is a mapping from the name of a parameter to its option, in the order of --help.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from costmodel.terminal import cli
from jaxserve.kv.layout import KINDS as MEMORIES
from jaxserve.load.slo import SLO
from jaxserve.load.spec import KINDS, OUTPUT, PROMPT
from jaxserve.load.units import Unit, rate, seconds, size
from jaxserve.scheduling.registry import POLICIES, check_name
from jaxserve.values import DTYPES
from models.errors import MOST as MOST_COUNT
from models.errors import UserError

Command = TypeVar("Command", bound=Callable[..., Any])
Option: TypeAlias = Callable[[Any], Any]  # what `click.option` gives
Group: TypeAlias = Mapping[str, Option]

MOST_IDS = 10_000_000  # of a vocabulary: ten times that of any model
VOCABULARY = 10_000  # ids below exist in every model that somebody serves


def takes(*options: Option | Group) -> Callable[[Command], Command]:
    """A command takes these options and groups, in this order."""
    each = [option for one in options for option in (one.values() if isinstance(one, Mapping) else (one,))]

    def on(command: Command) -> Command:
        for option in reversed(each):
            command = option(command)
        return command

    return on


def some(group: Group, names: Iterable[str]) -> Group:
    """These options of a group."""
    return {name: group[name] for name in names}


def given(context: click.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse(context: click.Context, names: Collection[str], why: str) -> None:
    """Raises UserError for the first of these options that was given. why: it may not be, after its name."""
    for option in context.command.params:
        if option.name in names and given(context, option.name or ""):
            raise UserError(f"{option.opts[0]} {why}")


class Renamed(click.Option):
    """An option whose first name is shown; the others are old names, which go on working."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names, self.opts = self.opts, self.opts[:1]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


class PolicyName(click.ParamType):
    """A policy of ours by name, or MODULE:NAME of one's own. one_worker: those that want several KV pools are refused."""

    def __init__(self, *, one_worker: bool = False):
        self.one_worker = one_worker
        known = [name for name, entry in POLICIES.items() if entry.one_worker or not one_worker]
        self.name = f"[{'|'.join(known)}|MODULE:NAME]"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        check_name(value, one_worker=self.one_worker)
        return str(value)


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


class Limits(click.ParamType):
    """--slo, several times or with commas."""

    name = "METRIC-pN=TIME[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        SLO.parse([value])
        return str(value)


class Folder(click.ParamType):
    """--compile-cache and --no-compile-cache set one option, and the last one counts."""

    name = "FOLDER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | bool:
        if value == "":
            raise UserError("--compile-cache is empty; give a folder, or --no-compile-cache")
        return value if isinstance(value, bool) else Path(value)


def _pause(text: str, what: str) -> float:
    return seconds(text, what, zero=True)


JSON = click.option("--json", "as_json", is_flag=True, help="JSON on standard output, for machines.")
REPORT = click.option("--report", type=Path, help="Write a page there, with pictures (pip install 'jaxserve[report]').")
RAW = click.option("--raw", is_flag=True, help="Go on with prompts as they stand. Default: turns of a chat, with a template.")

CACHE: Group = {  # one parameter, `jaxserve.programs.compile_cache.Choice`
    "compile_cache": click.option(
        "--compile-cache", type=Folder(), help="Keep compiled programs there. Default: ~/.cache/jaxserve/programs."
    ),
    "no_compile_cache": click.option(
        "--no-compile-cache",
        "compile_cache",
        type=Folder(),
        is_flag=True,
        flag_value=False,
        help="Keep no compiled programs, and take none.",
    ),
}

# An engine of this process: the fields of `jaxserve.engine.config.EngineConfig`.
ENGINE: Group = {
    "model": click.option(
        "--model", default="smollm2", show_default=True, help="smollm2, a folder, a .gguf file, a Hub name or random:PRESET."
    ),
    "dtype": click.option(
        "--dtype",
        default="auto",
        show_default=True,
        help=f"Dtype of the weights: auto (the fastest here), {', '.join(DTYPES)}.",
    ),
    "kv_dtype": click.option("--kv-dtype", help="Dtype of the KV pool. Default: that of the weights."),
    "layers": click.option(
        "--layers",
        default="auto",
        show_default=True,
        help="Layers in the program: unrolled, scanned, or auto (scanned on a TPU).",
    ),
    "policy": click.option(
        "--policy",
        type=PolicyName(),
        default="continuous",
        show_default=True,
        help="Scheduling policy. MODULE:NAME is one of your own: docs/policy.md.",
    ),
    "rows": click.option("--rows", type=int, help="Sequences at once, on each worker. Default: 64, or what the ladder has."),
    "context": click.option("--context", type=int, help="Longest sequence, tokens. Default: what the prompts need."),
    "multi_step": click.option(
        "--multi-step", type=int, default=1, show_default=True, help="Tokens that a row draws in one step while nobody waits."
    ),
    "prefill_tokens": click.option("--prefill-tokens", type=int, help="Most prompt tokens that are admitted and not yet run."),
    "budget": click.option("--budget", type=int, help="Most tokens of a step (chunked, disaggregated)."),
    "delay": click.option("--delay", type=float, help="Longest wait for a fuller batch, s (dynamic)."),
    "preferred": click.option("--preferred", type=cli.Numbers(), help="Batch sizes that start at once (dynamic)."),
    "prefill_workers": click.option(
        "--prefill-workers", type=int, help="KV pools that run this part (disaggregated). Default: 1."
    ),
    "decode_workers": click.option(
        "--decode-workers", type=int, help="KV pools that run this part (disaggregated). Default: 1."
    ),
    "link": click.option("--link", type=float, help="Bandwidth between workers, GB/s (disaggregated). Default: 10."),
    "queue_size": click.option(
        "--queue-size", type=int, help="Most requests that wait in the engine; the others wait outside."
    ),
    "queue_timeout": click.option("--queue-timeout", type=float, help="Time after which a waiting request is dropped, s."),
    "kv": click.option(
        "--kv", type=click.Choice(MEMORIES), default="paged", show_default=True, help="KV in pages, or in one slot a row."
    ),
    "page_size": click.option("--page-size", type=int, help="Tokens of a KV page. Default: 16."),
    "pages": click.option(
        "--pages", type=int, help="KV pages of each worker (slots with --kv contiguous). Default: enough, if memory allows."
    ),
    "prefix_cache": click.option(
        "--prefix-cache/--no-prefix-cache",
        default=None,
        help="Reuse the KV of prompts that begin alike. Default: yes, with pages.",
    ),
    "speculate": click.option(
        "--speculate", type=click.Choice(["ngram"]), help="Speculative decoding: draft tokens by prompt lookup."
    ),
    "drafts": click.option("--drafts", type=int, help="Most tokens of a draft. Default: 4."),
    "batch_invariant": click.option(
        "--batch-invariant", is_flag=True, help="Answers don't depend on their batch, in 16 bits too; slower."
    ),
    "ladder": click.option(
        "--ladder", type=Path, help="Buckets to compile, a file of python -m jaxserve.buckets. Default: powers of two."
    ),
}

LOG: Group = {"log": click.option("--log", type=Path, help="Write every decision there, for python -m jaxserve.replay.")}

# How answers are drawn: the fields of `SamplingParams`.
SAMPLING: Group = {
    "max_tokens": click.option("--max-tokens", type=int, default=128, show_default=True, help="Most tokens of an answer."),
    "min_tokens": click.option("--min-tokens", type=int, default=0, help="Tokens before an answer may end."),
    "temperature": click.option(
        "--temperature", type=float, default=0.0, show_default=True, help="Sampling temperature; 0 is greedy."
    ),
    "top_p": click.option(
        "--top-p", type=float, default=1.0, help="Draw from the likeliest tokens that have this probability together."
    ),
    "top_k": click.option("--top-k", type=int, default=0, help="Draw from so many of the likeliest tokens; 0: all."),
    "min_p": click.option(
        "--min-p", type=float, default=0.0, help="Draw from tokens with this share of the likeliest one's probability."
    ),
    "repetition_penalty": click.option(
        "--repetition-penalty", type=float, default=1.0, help="Penalty on tokens of prompt and answer; 1: none."
    ),
    "presence_penalty": click.option(
        "--presence-penalty", type=float, default=0.0, help="Penalty on tokens of the answer, once each."
    ),
    "frequency_penalty": click.option(
        "--frequency-penalty", type=float, default=0.0, help="Penalty on tokens of the answer, for each time."
    ),
    "logit_bias": click.option(
        "--logit-bias", type=Bias(), multiple=True, help="Added to a token's logit; -100 forbids it, 100 allows no other."
    ),
    "seed": click.option(
        "--seed", type=int, default=0, show_default=True, help="Seed of the first prompt's draws; each next prompt's is 1 more."
    ),
    "stop": click.option("--stop", multiple=True, help="A text that ends an answer; repeat it for several."),
    "stop_ids": click.option(
        "--stop-id", "stop_ids", type=int, multiple=True, help="A token id that ends an answer; repeat it for several."
    ),
    "ignore_eos": click.option("--ignore-eos", is_flag=True, help="Go on after the model's own end tokens."),
    "n": click.option("--n", type=int, default=1, show_default=True, help="Answers for each prompt."),
    "logprobs": click.option(
        "--logprobs", type=int, help="Log-probabilities of tokens, with so many alternatives. Shown with --json."
    ),
    "prompt_logprobs": click.option(
        "--prompt-logprobs", type=int, help="The same for the prompt's tokens, all of which are then run."
    ),
}

# A model on chips that need not be here.
DEPLOYMENT: Group = {
    "model": click.option(
        "--model", default="llama-3-8b", show_default=True, help="A name (python -m costmodel models) or a config.json."
    ),
    "dtype": click.option("--dtype", default="bfloat16", show_default=True, help="Dtype or format of the weights."),
    "kv_dtype": click.option(
        "--kv-dtype", help="Dtype of the KV cache. Default: bfloat16, or that of the weights if they are floats."
    ),
    "kv_pool": click.option(
        "--kv-pool", type=Unit(size, "SIZE"), help="KV memory of all chips together. Default: what weights and workspace leave."
    ),
    "page": click.option(
        "--page-size", "page", type=click.IntRange(1, MOST_COUNT), default=16, show_default=True, help="Tokens of a KV page."
    ),
    "headroom": click.option(
        "--headroom", type=float, default=0.01, show_default=True, help="Share of the pages that is kept free."
    ),
    "reserve": click.option(
        "--reserve", type=float, default=0.1, show_default=True, help="Share of a chip's memory for its runtime and others."
    ),
    "silicon": click.option(
        "--silicon", help="Kernels of calibrated steps: a folder of tables, or a calibration. Default: an H100's."
    ),
    "machine": click.option(
        "--machine",
        type=Path,
        help="Calibrated steps of this machine's engine (--chip host): what python -m jaxserve.calibrate --out wrote.",
    ),
}

# How requests come, what they are, and what is asked of the answers.
LOAD: Group = {
    "rates": click.option(
        "--rate",
        "rates",
        type=Unit(rate, "RATE", several=True),
        help="Rate of arrivals, such as 5/s; several are run one by one.",
    ),
    "arrivals": click.option(
        "--arrivals", type=click.Choice(KINDS), help="Default: poisson with --rate, replay with a --trace alone."
    ),
    "burstiness": click.option(
        "--burstiness", type=float, help="Shape of gamma gaps between arrivals: 1 is Poisson, below 1 come bursts."
    ),
    "to": click.option("--to", type=Unit(rate, "RATE"), help="The rate that a ramp from --rate reaches ..."),
    "over": click.option("--over", type=Unit(seconds, "TIME"), help="... within this time."),
    "clients": click.option(
        "--clients",
        type=cli.Numbers(),
        help="Closed loop: so many clients, each of which waits for its answer; several are run one by one.",
    ),
    "think": click.option("--think", type=Unit(_pause, "TIME"), help="Time between an answer and the client's next request."),
    "trace": click.option(
        "--trace", type=Path, help="Azure CSV or Mooncake JSONL: lengths, shared beginnings, and times to replay."
    ),
    "length_scale": click.option("--length-scale", type=float, help="Lengths of the trace, times this."),
    "time_scale": click.option(
        "--time-scale", type=float, help="Arrival times of the trace, times this; 0.5 is twice the rate."
    ),
    "prompt": click.option("--prompt", metavar="N[-M]", help=f"Tokens of a prompt, or from N to M. Default: {PROMPT}."),
    "output": click.option("--output", metavar="N[-M]", help=f"Tokens of an answer, or from N to M. Default: {OUTPUT}."),
    "requests": click.option(
        "--requests", type=int, default=100, show_default=True, help="Requests of each run, those of the warm-up included."
    ),
    "duration": click.option(
        "--duration", type=Unit(seconds, "TIME"), help="Send nothing that is due later. Default: no end but --requests."
    ),
    "warmup": click.option(
        "--warmup", type=int, default=0, show_default=True, help="Requests at the start that no figure counts."
    ),
    "limits": click.option(
        "--slo", "limits", type=Limits(), multiple=True, help="Limits on ttft, itl, tpot or e2e: ttft-p95=250ms,itl-p95=12ms."
    ),
    "saturate": click.option("--saturate", is_flag=True, help="Look for the highest rate that keeps the SLO, from --rate on."),
    "probes": click.option(
        "--probes", type=click.IntRange(1, 100), default=12, show_default=True, help="Most rates that --saturate tries."
    ),
    "seed": click.option("--seed", type=int, default=0, show_default=True, help="Seed of arrivals, lengths and prompts."),
}

# A server that runs elsewhere.
SERVER: Group = {
    "url": click.option(
        "--url", help="A server with OpenAI's API, instead of an engine in this process; --model names its model."
    ),
    "timeout": click.option(
        "--timeout", type=Unit(seconds, "TIME"), default="600s", show_default=True, help="--url: longest time without a byte."
    ),
    "key_variable": click.option("--key-variable", help="--url: the environment variable that holds its API key."),
    "vocabulary": click.option(
        "--vocabulary",
        type=click.IntRange(1, MOST_IDS),
        default=VOCABULARY,
        show_default=True,
        help="--url: prompts are made of token ids below this.",
    ),
    "tokenizer": click.option(
        "--tokenizer", help="--url: counts answers without usage: folder with tokenizer.json, .gguf file or model."
    ),
    "ignore_eos": click.option(
        "--ignore-eos/--no-ignore-eos", default=True, help="--url: ask for answers of full length. Default: yes."
    ),
}
