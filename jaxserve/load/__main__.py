"""Load on an engine or on any server with OpenAI's API: what clients see of it, and where it saturates.

Only the command line stands here. JAX is imported once the options are known to be sound, and only where an engine runs here.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from jaxserve.engine.config import EngineConfig
from jaxserve.load import output
from jaxserve.load.measure import Server, measure
from jaxserve.load.session import run_loads
from jaxserve.load.slo import SLO
from jaxserve.load.spec import LoadSpec
from jaxserve.options import CACHE, ENGINE, LOAD, LOG, REPORT, SERVER, given, refuse, takes
from models.errors import UserError

_ENGINE = {field.name for field in dataclasses.fields(EngineConfig)}
_OF_SERVER = set(SERVER)


@click.command(epilog="Example: python -m jaxserve.load --rate 2/s --requests 50 --slo ttft-p95=1s,itl-p95=100ms")
@takes(
    LOAD,
    SERVER,
    click.option(
        "--json", "as_json", is_flag=True, help="JSON on standard output: a run, or {runs, saturation} where there are several."
    ),
    REPORT,
    ENGINE,
    CACHE,
    LOG,
)
@click.pass_context
def main(
    ctx: click.Context, limits: tuple[str, ...], duration: float | None, as_json: bool, report: Path | None, **options: Any
) -> None:
    """Send a load to an engine, or to a server at a URL, and say what its clients saw.

    Requests are due by an absolute schedule (open loop) or when a client has had its answer (closed loop); latencies count from when a
    request was due. Exits with 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP and with 3 when the server went away; what was
    measured until then is kept and marked. Before that, while programs compile, each ends it with 2 as bad input does: there is nothing
    to keep.
    """
    if report is not None:
        with cli.importing():
            from jaxserve.reporting.report import check_path, write_report
        check_path(report)
    target = _engine_of(ctx, options) if options["url"] is None else _server_of(ctx, options)
    asked = LoadSpec(slo=SLO.parse(limits) if limits else None, duration=math.inf if duration is None else duration, **options)
    with cli.Bars() as bars:
        session: AbstractContextManager[Server]
        if isinstance(target, EngineConfig):
            with cli.importing():
                from jaxserve.load.engine_session import engine_session  # see above
            session = engine_session(target, asked, bars.bar, priced=report is not None)
        else:
            with cli.importing():
                from jaxserve.load.http_session import http_session
            session = http_session(bars.bar, **target)
        with session as server:
            found = run_loads(asked, functools.partial(measure, server, asked))
    try:
        output.show(found, as_json)
    finally:  # standard output may be full: the page is kept
        if report is not None:
            write_report(report, found.runs, command=cli.command_line("jaxserve.load"))
            click.echo(f"the report is in {report}", err=True)
    output.leave(found)


def _engine_of(context: click.Context, options: dict[str, Any]) -> EngineConfig:
    """What the options say of an engine in this process, taken out of them with all that is about a server at a URL.

    Raises:
      UserError: something was said of such a server, or no engine could be so.
    """
    refuse(context, _OF_SERVER, "is of a server at a URL; give --url as well")
    for name in _OF_SERVER & set(options):
        del options[name]
    return EngineConfig(**{name: options.pop(name) for name in _ENGINE & set(options)})


def _server_of(context: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """What the options say of a server at a URL, as `http_session` takes it, taken out of them with all that is about an engine here.

    Raises:
      UserError: something was said of such an engine: that server has one of its own; or there is no key.
    """
    refuse(context, _ENGINE - {"model"}, "is of an engine in this process, and --url asks one elsewhere; leave one of them out")
    model = {name: options.pop(name) for name in _ENGINE & set(options)}["model"]
    found = {name: options.pop(name) for name in _OF_SERVER & set(options)}
    key = _key(found.pop("key_variable"))
    return {**found, "key": key, "model": model if given(context, "model") else None}


def _key(variable: str | None) -> str | None:
    """What an environment variable holds: a key on the command line would be seen by all."""
    if variable is None:
        return None
    if not (found := os.environ.get(variable)):
        raise UserError(f"--key-variable {variable} is empty; put the server's API key into that environment variable")
    return found


if __name__ == "__main__":
    cli.run(main)
