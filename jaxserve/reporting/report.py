"""The page that `--report` writes: one file that shows a run, or several side by side, without a network.

plotly draws, as SVG; `jaxserve/reporting/` holds the figures and the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from costmodel.hardware.host import today
from jaxserve.load.metrics import DEFINITIONS
from jaxserve.load.quantiles import PERCENTS
from jaxserve.load.result import Run
from jaxserve.load.slo import METRICS
from jaxserve.reporting.figure import Section, plotly
from jaxserve.reporting.first_token import first_tokens
from jaxserve.reporting.headline import notes, outcome, waits
from jaxserve.reporting.latency import latencies
from jaxserve.reporting.page import render, told
from jaxserve.reporting.prediction import predicted
from jaxserve.reporting.roofline import rooflines
from jaxserve.reporting.timeline import timeline
from jaxserve.version import version
from models.errors import UserError
from models.files.reading import check_new, write_file

WITNESSES = {
    "analytical": "worked out from the architecture and the chip's figures; no program was looked at",
    "compiled": "read from the compiled program",
    "calibrated": "a model whose few parameters were fitted to measurements",
    "measured": "a clock",
    "simulated": "the scheduler that serves, on a virtual clock, with step times from a model",
}


def check_path(path: Path) -> None:
    """Whether a report could be written there, asked before the work that it shows.

    Raises:
      UserError: plotly is not installed, the name is no page's, or there is no such folder.
    """
    plotly("graph_objects")
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--report is {str(path)!r}; give a name that ends in .html")
    check_new(path, name=f"--report {path}")


def write_report(
    path: Path,
    runs: Sequence[Run],
    *,
    names: Sequence[str] | None = None,
    title: str = "jaxserve: a load and what became of it",
    command: str = "",
    alerts: Sequence[str] = (),
    more: Sequence[Section] = (),
) -> None:
    """Write the page.

    Args:
      runs: at least one; several stand side by side in every figure that allows it.
      names: of the runs, each another; the policy, or the server, by default.
      command: that made them, to be shown.
      alerts: what else a reader has to know before any figure.
      more: figures of whoever asks, which stand before the others.

    Raises:
      UserError: as `check_path`; no runs, or names that don't tell them apart; the file can't be written.
    """
    check_path(path)
    by_name = dict(zip(_names(runs, names), runs, strict=True))
    page = render(
        (*more, *sections(by_name)),
        title=title,
        facts=[f"written {today()} by jaxserve {version()}", *_where(runs)],
        version=version(),
        command=command,
        alerts=[*alerts, *(alert for name, run in by_name.items() for alert in _alerts(name, run))],
        names=list(by_name),
        witnesses=[run.witness for run in runs],
        outcome=outcome(by_name),
        waits=waits(by_name),
        percents=PERCENTS,
        headline_notes=notes(by_name),
        definitions=_definitions(),
        settings={name: told(_shown(run)) for name, run in by_name.items()},
    )
    write_file(path, page, name=f"--report {path}")


def sections(runs: dict[str, Run]) -> tuple[Section, ...]:
    """Every figure of the page, those without data included, which say why."""
    return (
        latencies(runs),
        first_tokens(runs),
        timeline(runs),
        Section("model", "The model against the clock", (predicted(runs), *rooflines(runs))),
    )


def _names(runs: Sequence[Run], names: Sequence[str] | None) -> list[str]:
    if not runs:
        raise UserError("a report of no run shows nothing; give at least one")
    found = list(names) if names is not None else _told_apart(runs)
    if len(found) != len(runs) or len(set(found)) < len(found):
        raise UserError(f"a report of {len(runs)} runs has the names {found}; give each run one of its own")
    return found


def _told_apart(runs: Sequence[Run]) -> list[str]:
    """By the first setting that differs between all of them, else by number."""
    columns = [[_word(run.settings.get(key)) for run in runs] for key in ("name", "load", "policy", "url", "model")]
    known = [column for column in columns if all(column)] or [["run"] * len(runs)]
    different = (column for column in known if len(set(column)) == len(runs))
    return next(different, [f"{name} ({number})" for number, name in enumerate(known[0], start=1)])


def _word(value: Any) -> str:
    """A policy is written down with all its fields; its name is enough here."""
    return str(value.get("name", "")) if isinstance(value, Mapping) else str(value or "")


def _where(runs: Sequence[Run]) -> list[str]:
    """Facts that all runs share."""
    shared = []
    for key in ("date", "machine", "jax", "model"):
        values = {str(run.settings.get(key, "")) for run in runs}
        if len(values) == 1 and (value := values.pop()):
            shared.append(f"{key} {value}")
    return shared


def _definitions() -> dict[str, str]:
    """Of metrics, under the names that the page has for them, and of witnesses."""
    named = {
        key.upper() if key in METRICS else key.replace("_per_s", "/s").replace("_", " "): what
        for key, what in DEFINITIONS.items()
    }
    return named | {f"witness: {name}": what for name, what in WITNESSES.items()}


def _alerts(name: str, run: Run) -> list[str]:
    """What a reader has to know before any figure."""
    found = []
    if not run.complete:
        found.append(f"{name}: this run is not complete ({run.why}); what had come until then is shown.")
    if run.warm:
        found.append(f"{name}: the prefix cache was warm: {run.warm:,} prompt tokens had their KV there before the run began.")
    if run.warm is None:
        found.append(f"{name}: whether the server's prefix cache was warm is not known.")
    lost = [record for record in run.records if not record.answered]
    if lost:
        found.append(
            f"{name}: {len(lost):,} of {len(run.records):,} requests were not answered; latencies are of those that were, so a server "
            "that refuses what is slow looks quick. Goodput and SLOs count them."
        )
    return found


def _shown(run: Run) -> dict[str, Any]:
    """Settings but for the costs of programs, which stand beside the roofline."""
    return {key: value for key, value in run.settings.items() if key != "programs"}
