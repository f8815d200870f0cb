"""Load on an engine or on any server with OpenAI's API: what clients see of it, and where it saturates.

Only the command line stands here. JAX is imported once the options are known to be sound, and only where an engine runs here.
"""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from jaxserve.engine.config import EngineConfig
from jaxserve.load import options, output
from jaxserve.load.session import Session
from jaxserve.load.slo import SLO
from jaxserve.load.spec import LoadSpec


@options.engine
@click.command(epilog="Example: python -m jaxserve.load --rate 2/s --requests 50 --slo ttft-p95=1s,itl-p95=100ms")
@options.how
@options.at_url
@click.option(
    "--json", "as_json", is_flag=True, help="JSON on standard output: a run, or {runs, saturation} where there are several."
)
@click.option("--report", type=Path, help="Write a page there, with pictures.")
@click.pass_context
def main(
    ctx: click.Context, limits: tuple[str, ...], duration: float | None, as_json: bool, report: Path | None, **given: Any
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
    target = options.settings(ctx, given) if given["url"] is None else options.server(ctx, given)
    asked = LoadSpec(slo=SLO.parse(limits) if limits else None, duration=math.inf if duration is None else duration, **given)
    with cli.Bars() as bars:
        session: AbstractContextManager[Session]
        if isinstance(target, EngineConfig):
            with cli.importing():
                from jaxserve.load.engine_session import engine_session  # see above
            session = engine_session(target, asked, bars.bar, priced=report is not None)
        else:
            with cli.importing():
                from jaxserve.load.http_session import http_session
            session = http_session(asked, bars.bar, **target)
        with session as made:
            found = made.run()
    try:
        output.show(found, as_json)
    finally:  # standard output may be full: the page is kept
        if report is not None:
            write_report(report, found.runs, command=" ".join(["python -m jaxserve.load", *sys.argv[1:]]))
            click.echo(f"the report is in {report}", err=True)
    output.leave(found)


if __name__ == "__main__":
    cli.run(main)
