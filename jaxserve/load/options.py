"""The options of `python -m jaxserve.load`, and what they come to."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from costmodel.terminal import cli
from jaxserve import generate
from jaxserve.engine.config import EngineConfig
from jaxserve.load.slo import SLO
from jaxserve.load.spec import KINDS, OUTPUT, PROMPT
from jaxserve.load.units import Unit, rate, seconds
from models.errors import UserError

MOST_IDS = 10_000_000  # of a vocabulary: ten times that of any model
VOCABULARY = 10_000  # ids below exist in every model that somebody serves

_ENGINE = {field.name for field in dataclasses.fields(EngineConfig)}
_SERVER = {"url", "timeout", "key_variable", "vocabulary", "ignore_eos", "tokenizer"}


class Limits(click.ParamType):
    """--slo, several times or with commas."""

    name = "METRIC-pN=TIME[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        SLO.parse([value])
        return str(value)


def how(command: Callable[..., None]) -> Callable[..., None]:
    """How requests come, what they are, and what is asked of the answers."""
    for option in reversed(_HOW):
        command = option(command)
    return command


def at_url(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a server that runs elsewhere."""
    for option in reversed(_AT_URL):
        command = option(command)
    return command


def engine(command: click.Command) -> click.Command:
    """The options of an engine, as `python -m jaxserve.generate` has them."""
    command.params += [option for option in generate.main.params if option.name in _ENGINE]
    return command


def settings(context: click.Context, options: dict[str, Any]) -> EngineConfig:
    """What the options say of an engine in this process, taken out of them with all that is about a server at a URL.

    Raises:
      UserError: something was said of such a server, or no engine could be so.
    """
    refuse(context, _SERVER, "is of a server at a URL; give --url as well")
    for name in _SERVER & set(options):
        del options[name]
    return EngineConfig(**{name: options.pop(name) for name in _ENGINE & set(options)})


def server(context: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """What the options say of a server at a URL, as `http_session` takes it, taken out of them with all that is about an engine here.

    Raises:
      UserError: something was said of such an engine: that server has one of its own; or there is no key.
    """
    refuse(context, _ENGINE - {"model"}, "is of an engine in this process, and --url asks one elsewhere; leave one of them out")
    model = {name: options.pop(name) for name in _ENGINE & set(options)}["model"]
    named = context.get_parameter_source("model") is ParameterSource.COMMANDLINE
    found = {name: options.pop(name) for name in _SERVER & set(options)}
    key = _key(found.pop("key_variable"))
    return {**found, "key": key, "model": model if named else None}


def refuse(context: click.Context, names: Collection[str], why: str) -> None:
    """Raises UserError for the first of these options that was given. why: it may not be, after its name."""
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise UserError(f"{option.opts[0]} {why}")


def _key(variable: str | None) -> str | None:
    """What an environment variable holds: a key on the command line would be seen by all."""
    if variable is None:
        return None
    if not (found := os.environ.get(variable)):
        raise UserError(f"--key-variable {variable} is empty; put the server's API key into that environment variable")
    return found


def _pause(text: str, what: str) -> float:
    return seconds(text, what, zero=True)


_HOW = (
    click.option(
        "--rate", "rates", type=Unit(rate, "RATE", several=True), help="Of arrivals, such as 5/s; several run one by one."
    ),
    click.option("--arrivals", type=click.Choice(KINDS), help="Default: poisson with --rate, replay with a --trace alone."),
    click.option("--burstiness", type=float, help="Shape of gamma gaps: 1 is Poisson, below come bursts."),
    click.option("--to", type=Unit(rate, "RATE"), help="Where a ramp from --rate goes ..."),
    click.option("--over", type=Unit(seconds, "TIME"), help="... within this time."),
    click.option(
        "--clients", type=cli.Numbers(), help="Closed loop: so many clients, each of which waits for its answer; several."
    ),
    click.option("--think", type=Unit(_pause, "TIME"), help="Of a client, between an answer and its next request."),
    click.option("--trace", type=Path, help="Azure CSV or Mooncake JSONL: lengths, shared beginnings, and times to replay."),
    click.option("--length-scale", type=float, help="Prompts and answers of the trace times this."),
    click.option("--time-scale", type=float, help="Arrivals of the trace times this; 0.5 is twice the rate."),
    click.option("--prompt", metavar="N[-M]", help=f"Tokens of a prompt, or from N to M. Default: {PROMPT}."),
    click.option("--output", metavar="N[-M]", help=f"Tokens of an answer, or from N to M. Default: {OUTPUT}."),
    click.option("--requests", type=int, default=100, show_default=True, help="Of each run, the warm-up included."),
    click.option(
        "--duration", type=Unit(seconds, "TIME"), help="Send nothing that is due later. Default: no end but --requests."
    ),
    click.option("--warmup", type=int, default=0, show_default=True, help="So many requests first, which are in no figure."),
    click.option("--slo", "limits", type=Limits(), multiple=True, help="ttft, itl, tpot or e2e: ttft-p95=250ms,itl-p95=12ms."),
    click.option("--saturate", is_flag=True, help="Look for the highest rate that keeps the SLO, from --rate on."),
    click.option("--probes", type=click.IntRange(1, 100), default=12, show_default=True, help="Rates that are tried at most."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of arrivals, lengths and prompts."),
)
_AT_URL = (
    click.option("--url", help="A server with OpenAI's API, instead of an engine in this process; --model names its model."),
    click.option("--timeout", type=Unit(seconds, "TIME"), default="600s", show_default=True, help="--url: without a byte."),
    click.option("--key-variable", help="--url: the environment variable that holds its API key."),
    click.option(
        "--vocabulary",
        type=click.IntRange(1, MOST_IDS),
        default=VOCABULARY,
        show_default=True,
        help="--url: prompts are of ids below.",
    ),
    click.option("--tokenizer", help="--url: counts answers without usage: folder with tokenizer.json, .gguf file or model."),
    click.option("--ignore-eos/--no-ignore-eos", default=True, help="--url: ask for answers of full length. Default: yes."),
)
