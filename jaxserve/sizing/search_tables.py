"""The tables and plain data of a search for the cheapest deployment."""

from __future__ import annotations

from typing import Any

from costmodel.cli.output import Output, table
from costmodel.sizing import MODEL, UNDECIDED
from costmodel.terminal.tables import Table
from jaxserve.sizing.search import Option, Search

MARKS = {
    "analytical": "simulated: the scheduler that will run, on a virtual clock; steps analytical (full roofline). So a configuration that "
    "misses is infeasible by model, and one that meets the SLO is undecided until measured",
    "calibrated": "simulated: the scheduler that will run, on a virtual clock; steps calibrated (kernels of one GPU, carried over). What "
    "misses at the quick end of their interval as well is infeasible by model; all else is undecided until measured",
}


def search_output(found: Search, as_json: bool) -> Output:
    """All of it."""
    parts: list[str | Table] = [*heading(found)]
    ran = [option for option in found.options if option.trial is not None]
    out = [option for option in found.options if option.trial is None and option.verdict.word != UNDECIDED]
    if ran:
        parts.append(_simulated(found, ran))
    if out:
        parts.append(_ruled_out(out))
    if found.left:
        parts.append(f"not run: {found.left} more that the model allows and that cost no less; raise --most to see them")
    if found.frontier:
        parts.append(_frontier(found))
    parts.append(answer(found))
    return Output(plain(found), parts, form="json" if as_json else "text")


def heading(found: Search) -> list[str]:
    slo = ", ".join(f"{metric.upper()} P{q:g} <= {limit * 1e3:g} ms" for metric, q, limit in found.asked.slo.limits())
    demand, kv = found.traffic.demand, found.options[0].placement.kv.name
    return [
        f"{found.chosen.name}, weights {found.asked.dtype}, KV {kv}: the cheapest that holds {slo}",
        f"{found.traffic.source}: {found.traffic.rate:.4g} requests/s, on average {demand.prompt:,.0f} prompt and "
        f"{demand.answer:,.0f} answer tokens",
        f"cheap is {found.order}",
        MARKS[found.asked.step_times],
    ]


def answer(found: Search) -> str:
    """What to take, in a line."""
    best = found.best
    if best is None:
        near = min((option for option in found.options if option.trial), key=lambda option: option.used, default=None)
        said = "nothing that was looked at meets the SLO"
        if near is not None:
            said += f"; nearest is {_name(near)}, which uses {near.used:.0%} of a limit"
        return f"{said}; add chips (--chip), degrees (--tensor-parallel) or caps (--batch), or ask for less"
    assert best.configuration is not None
    return f"take {_name(best)}: {_cost(best, found)}, {best.used:.0%} of a limit used; {best.verdict.word}"


def _name(option: Option) -> str:
    configuration = option.configuration
    return option.chips if configuration is None else f"{option.chips}, cap {configuration.cap}, {configuration.name}"


def _cost(option: Option, found: Search) -> str:
    return f"{option.cost:.2f} USD/h" if "USD" in found.order else f"{option.cost:g} chip{'s' if option.cost > 1 else ''}"


def _simulated(found: Search, options: list[Option]) -> Table:
    rows = []
    for option in options:
        ran, full, configuration = option.trial, option.saturated_throughput, option.configuration
        assert ran is not None and full is not None and configuration is not None
        summary = ran.summary
        load = (
            f"{summary.ttft.p95 * 1e3:,.1f}",
            f"{summary.itl.p95 * 1e3:,.2f}",
            f"{ran.batch.mean:.1f}",
            f"{option.used:.0%}",
        )
        flooded = (f"{full.tokens_per_s:,.0f}", f"{option.per_chip:,.0f}", f"{full.itl * 1e3:,.2f}")
        met = "met" if ran.met else "missed"
        mark = "<-" if option is found.best else ""
        rows.append(
            (option.chips, configuration.name, str(configuration.cap), _cost(option, found), *load, met, *flooded, mark)
        )
    columns = (
        "chips", "policy", "cap", "cost", "TTFT P95 ms", "ITL P95 ms", "rows a step", "of a limit", "SLO", "tok/s, flooded", "a chip",
        "ITL P95 ms", "",
    )  # fmt: skip
    return table("at the load, and flooded with work (simulated)", columns, rows, left=2)


def _ruled_out(options: list[Option]) -> Table:
    """One line for each reason."""
    reasons: dict[tuple[str, str, str], list[Option]] = {}
    for option in options:
        reasons.setdefault((option.chips, option.verdict.word, option.verdict.reason), []).append(option)
    rows = []
    for (chips, word, reason), alike in reasons.items():
        caps = sorted({option.configuration.cap for option in alike if option.configuration})
        rows.append((chips, ", ".join(map(str, caps)) or "any", word, reason))
    return table("ruled out before any simulation", ("chips", "cap", "verdict", "why"), rows, left=1, words=2)


def _frontier(found: Search) -> Table:
    rows = []
    for option in found.frontier:
        assert option.configuration is not None and option.saturated_throughput is not None
        rows.append(
            (
                _name(option),
                f"{option.saturated_throughput.itl * 1e3:,.2f}",
                f"{option.per_chip:,.0f}",
                "yes" if option.meets else "no",
            )
        )
    columns = ("configuration", "ITL P95 ms", "tok/s and chip", "meets the SLO at the load")
    return table("frontier of throughput against latency, flooded with work (simulated)", columns, rows)


def plain(found: Search) -> dict[str, Any]:
    """For --json. Seconds; money in USD/h."""
    return {
        "heading": heading(found),
        "order": found.order,
        "steps": found.asked.step_times,
        "answer": answer(found),
        "best": None if found.best is None else _plain(found.best),
        "left": found.left,
        "infeasible_by_model": sum(option.verdict.word == MODEL for option in found.options),
        "options": [_plain(option) for option in found.options],
        "frontier": [_name(option) for option in found.frontier],
    }


def _plain(option: Option) -> dict[str, Any]:
    configuration, ran, full = option.configuration, option.trial, option.saturated_throughput
    return {
        "chip": option.placement.chip.name,
        "tensor_parallel": option.placement.degree,
        "policy": configuration.name if configuration else None,
        "cap": configuration.cap if configuration else None,
        "cost": option.cost,
        "verdict": option.verdict.word,
        "reason": option.verdict.reason,
        "meets": option.meets,
        "ttft_p95": ran.summary.ttft.p95 if ran else None,
        "itl_p95": ran.summary.itl.p95 if ran else None,
        "flooded": full._asdict() | {"batch": full.batch._asdict()} if full else None,
    }
