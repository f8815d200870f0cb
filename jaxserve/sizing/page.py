"""The page that `--report` of a sizing study or search writes: the run of what it recommends, and the frontier that a search found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.sizing import Placement
from jaxserve.deployment.step_times import StepTimes, roofline, step_times
from jaxserve.load.result import Pool, Run
from jaxserve.predict.step_costs import StepCosts
from jaxserve.reporting.report import write_report
from jaxserve.reporting.virtual_steps import VirtualSteps
from jaxserve.sizing.frontier import frontier_section
from jaxserve.sizing.line import Line
from jaxserve.sizing.search import Option, Search
from jaxserve.sizing.search_tables import answer
from jaxserve.sizing.spec import SizingSpec
from jaxserve.sizing.study import Study
from jaxserve.sizing.traffic import Traffic, judged
from jaxserve.sizing.trial import Configuration, trial
from models.errors import UserError

NOTHING = "--report: nothing was left to simulate, so there is no run to show; see the table for why"


def study_page(path: Path, found: Study, command: str) -> None:
    """Write the run of the largest cap that may hold the SLO; of the largest that was simulated where none may.

    Raises:
      UserError: nothing was simulated; as `write_report`.
    """
    line = recommended(found)
    configuration = found.asked.configuration(line.candidate.batch, found.pool, found.steps.piece)
    run = run_of(found.asked, found.placement, configuration, found.traffic, found.steps)
    said = f"cap {configuration.cap}: {line.verdict.word}: {line.verdict.reason}"
    title = f"jaxserve: {found.chosen.name} on {found.placement.degree} x {found.placement.chip.name}, sized"
    write_report(path, [run], title=title, command=command, alerts=(said, _alert(found.steps)))


def search_page(path: Path, found: Search, command: str) -> None:
    """Write the frontier and the run of the chosen point; where none was, of the one that uses least of its limits.

    Raises:
      UserError: nothing was simulated; as `write_report`.
    """
    option = chosen(found)
    assert option.configuration is not None
    steps = step_times(option.placement, found.asked.step_times, found.asked.silicon)
    run = run_of(found.asked, option.placement, option.configuration, found.traffic, steps)
    alerts, more = (answer(found), _alert(steps)), (frontier_section(found),)
    write_report(
        path, [run], title=f"jaxserve: {found.chosen.name}, where to run it", command=command, alerts=alerts, more=more
    )


def recommended(found: Study) -> Line:
    """The candidate that is shown. Raises UserError where none was simulated."""
    ran = [line for line in found.lines if line.trial is not None]
    if not ran:
        raise UserError(NOTHING)
    return max(ran, key=lambda line: (line.candidate.batch in found.open, line.candidate.batch))


def chosen(found: Search) -> Option:
    """The option that is shown. Raises UserError where none was simulated."""
    ran = [option for option in found.options if option.trial is not None]
    if not ran:
        raise UserError(NOTHING)
    return found.best or min(ran, key=lambda option: option.used)


def run_of(asked: SizingSpec, placement: Placement, configuration: Configuration, traffic: Traffic, steps: StepTimes) -> Run:
    """The trial of a configuration once more, with its steps and what they should cost.

    The records that a study judges are those of the run; the others, which fill and empty the system, count as warm-up, so that they
    stand in the number of open requests alone and every percentile is that of the study's table.
    """
    roof = roofline(placement)
    costs, seen = StepCosts(roof, placement.chip, placement.dtype), VirtualSteps(predictor=roof)
    found = trial(configuration, traffic, steps.seconds, asked.slo, watches=(costs, seen))
    every, mine = found.records, judged(len(found.records))
    records = every[mine]
    settings: Mapping[str, Any] = {
        "name": f"cap {configuration.cap}, {configuration.name}",
        "model": placement.model.name,
        "chip": f"{placement.degree} x {placement.chip.name}",
        "weights": placement.dtype,
        "kv": placement.kv.name,
        "requests": traffic.source,
        "rate": traffic.rate,
        "judged": f"requests {mine.start + 1:,} to {mine.start + len(records):,} of {len(every):,}; the others fill and empty the system",
        "step times": f"{steps.witness}, {steps.source}",
        "programs": costs.to_json(),
    }
    return Run(
        records,
        max(record.end for record in records) - records[0].intended,
        "simulated",
        settings,
        begin=records[0].intended,
        warmup=(*every[: mine.start], *every[mine.start + len(records) :]),
        warm=0,
        steady=asked.trace is None,
        slo=asked.slo,
        steps=tuple(seen.steps),
        pool=Pool(configuration.pages, configuration.page),
    )


def _alert(steps: StepTimes) -> str:
    return f"No server ran: simulated, with {steps.witness} step times ({steps.source})."
