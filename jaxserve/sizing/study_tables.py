"""The tables and plain data of a sizing study."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from costmodel.cli.output import Output, table
from costmodel.sizing import gib
from costmodel.terminal.tables import Table
from jaxserve.deployment.step_times import LEVEL
from jaxserve.load.metrics import Summary
from jaxserve.load.quantiles import Quantiles
from jaxserve.load.saturation import Saturation
from jaxserve.scheduling.registry import takes
from jaxserve.sizing.line import Line
from jaxserve.sizing.plan import URL, Command, commands, needs_server
from jaxserve.sizing.study import Study
from jaxserve.sizing.trial import Tally, Trial

MODELLED = (
    "¹ analytical: nominal reads each weight once a step, the embedding table too, and each sequence's KV once; full reads a few rows of "
    "the table, and charges activations, KV writes, attention and collectives. Neither knows a kernel or a launch: they are estimates, not "
    "bounds, and cannot alone decide an ITL target"
)
SIMULATED = {
    "analytical": "² simulated: the scheduler that will run, on a virtual clock; a step takes its full analytical time, and kernels below "
    "their roof, launches and the host come on top. * too few requests for that percentile",
    "calibrated": "² simulated: the scheduler that will run, on a virtual clock; a step takes its calibrated time, and the host {host}. "
    "* too few requests for that percentile",
}
NUMBERS = (
    "Three different numbers: how many clients are in the system, waiting or served; how many places of the engine are taken, which the "
    "cap bounds; how many of those one step runs. A cap reserves no memory: who is admitted follows the pages that are free"
)


def study_output(found: Study, as_json: bool) -> Output:
    """All of it."""
    plan = commands(found)
    parts: list[str | Table] = [*heading(found), _candidates(found), MODELLED]
    ran = [line for line in found.lines if line.trial is not None]
    if ran:
        parts += [
            _latencies(found, ran),
            SIMULATED[found.steps.witness].format(host="is in it" if found.steps.host else "comes on top"),
        ]
        if hasty := [str(line.candidate.batch) for line in ran if _of(line).hasty]:
            parts.append(
                f"a short run: at cap {', '.join(hasty)} the system was still filling up when the first of the requests that are judged "
                "came; give more --requests before you believe what was met"
            )
        parts += [*spans(found), _numbers(found, ran), NUMBERS]
    if found.limit is not None:
        parts.append(f"admission limit ² of cap {found.limited}: {_limit(found.limit)}")
    elif found.limited is not None:
        parts.append(f"admission limit of cap {found.limited}: so few requests say nothing of it; give more --requests")
    for run in found.measured:
        where = run.elsewhere(found.placement.model.name, found.placement.chip.name)
        foreign = where or run.foreign(found.traffic.rate, found.traffic.demand)
        said = f"measured, cap {run.cap}: {run.verdict(found.asked.slo).reason}"
        parts.append(said + (f"; decides nothing here: {foreign}" if foreign else ""))
    parts += ["verdicts", *(f"  {line.candidate.batch}: {line.verdict.word}: {line.verdict.reason}" for line in found.lines)]
    if plan:
        where = f"a server at {URL} that runs it" if needs_server(found) else "the chip that is meant"
        parts += [f"measurement plan, to be run on {where}; give each file back with --measured FILE"]
        parts += [text for command in plan for text in (f"  # {command.purpose}", f"  {command.text}")]
    return Output(plain(found, plan), parts, form="json" if as_json else "text")


def heading(found: Study) -> list[str]:
    """What the figures are of."""
    asked, pool, context = found.asked, found.pool, found.context
    each = pool.sequence(context)
    before = int(pool.size // each)
    slo = ", ".join(f"{metric.upper()} P{q:g} <= {limit * 1e3:g} ms" for metric, q, limit in asked.slo.limits())
    policy = f"{asked.policy[0]}, {asked.budget} tokens a step" if takes(asked.policy[0], "budget") else asked.policy[0]
    return [
        f"{found.chosen.name} on {found.placement.degree} x {found.placement.chip.name}, weights {asked.dtype}, KV "
        f"{found.placement.kv.name}, policy {policy}",
        found.fit.verdict + ("" if asked.kv_pool or not found.fit.fits else "; the KV pool is what they leave"),
        f"KV pool {gib(pool.size)}: {gib(each)} a full sequence of {context} tokens, {before} full sequences before block metadata and "
        f"headroom, {pool.sequences(context)} after: {pool.pages:,} pages of {pool.page} tokens, {pool.entry:g} B of page table each "
        f"({pool.metadata / 1024:,.0f} KiB), {asked.headroom:.1%} of them kept free",
        f"{found.traffic.source}: {found.traffic.rate:.4g} requests/s; {slo}",
        f"step times of the simulations: {found.steps.witness}, {found.steps.source}",
    ]


def _candidates(found: Study) -> Table:
    rows = []
    for line in found.lines:
        seen = line.candidate
        over = gib(seen.over) if seen.over else "-"
        steps = (f"{seen.nominal * 1e3:.2f}", f"{seen.full * 1e3:.2f}", f"{seen.batch / seen.nominal:,.0f}")
        rows.append((str(seen.batch), gib(seen.kv), over, *steps, line.verdict.word))
    columns = ("batch", "KV", "over the pool", "nominal step ms ¹", "full step ms ¹", "tok/s nominal ¹", "verdict")
    return table("candidate batches of full sequences", columns, rows, words=1)


def _latencies(found: Study, lines: list[Line]) -> Table:
    rows = []
    for line in lines:
        ran = _of(line)
        met = "met" if ran.met else f"missed: {ran.missed}"
        latencies = (*_points(ran.summary.ttft), *_points(ran.summary.itl))
        rows.append((str(line.candidate.batch), *latencies, f"{ran.tokens_per_s:,.0f}", met))
    names = (f"{metric} P{q} ms ²" for metric in ("TTFT", "ITL") for q in (50, 95, 99))
    title = f"each as a cap, at {found.traffic.rate:.4g} requests/s"
    return table(title, ("cap", *names, "tok/s ²", "SLO ²"), rows, words=1)


def _numbers(found: Study, lines: list[Line]) -> Table:
    rows = []
    for line in lines:
        ran = _of(line)
        most = ran.pages * found.pool.page * found.pool.token
        tallies = (f"{ran.within:.1f}", *_tally(ran.active), *_tally(ran.batch))
        rows.append((str(line.candidate.batch), *tallies, gib(line.candidate.kv), gib(most), str(ran.preemptions)))
    crowd = ("clients, mean ²", "places taken, mean ²", "most", "in a step, mean ²", "most")
    columns = ("cap", *crowd, "KV if full", "KV in use, most ²", "preemptions ²")
    return table("clients, active sequences, rows of a step", columns, rows)


def _limit(limit: Saturation) -> str:
    """The highest rate, what breaks beyond it, and the admission limit that follows; none where nothing broke."""
    if limit.above == math.inf:
        return f"none was found: the SLO holds at every rate that was tried, up to {limit.rate:.4g}/s"
    beyond = next(probe for probe in limit.probes if probe.rate == limit.above)
    return f"{limit.verdict}; at {limit.above:.4g}/s: {beyond.why}"


def _of(line: Line) -> Trial:
    assert line.trial is not None
    return line.trial


def _points(of: Quantiles) -> tuple[str, ...]:
    """P50, P95 and P99 in ms; a star where the sample is too small."""
    return tuple("-" if math.isnan(of.at(q)) else f"{of.at(q) * 1e3:,.2f}{'*' if q in of.few else ''}" for q in (50, 95, 99))


def _tally(of: Tally) -> tuple[str, str]:
    return f"{of.mean:.1f}", str(of.most)


def plain(found: Study, plan: list[Command]) -> dict[str, Any]:
    """For --json. Seconds and bytes."""
    pool = found.pool
    return {
        "heading": heading(found),
        "fits": found.fit.fits,
        "least_degree": found.fit.least,
        "pool": {
            "bytes": pool.size,
            "sequence_bytes": pool.sequence(found.context),
            "sequences_before": int(pool.size // pool.sequence(found.context)),
            "sequences": pool.sequences(found.context),
            "pages": pool.pages,
            "usable_pages": pool.usable,
            "metadata_bytes": pool.metadata,
        },
        "slo": found.asked.slo.to_json(),
        "rate": found.traffic.rate,
        "steps": {"witness": found.steps.witness, "source": found.steps.source},
        "candidates": [_plain_line(line) for line in found.lines],
        "admission": {"cap": found.limited, **found.limit.to_json()} if found.limit else None,
        "clients": list(found.clients),
        "plan": [command._asdict() | {"text": command.text} for command in plan],
    }


def _plain_line(line: Line) -> dict[str, Any]:
    seen, ran = line.candidate, line.trial
    simulated = None
    if ran is not None:
        simulated = {
            "summary": {key: value for key, value in ran.summary.to_json().items() if key != "definitions"},
            "tokens_per_s": None if math.isnan(ran.tokens_per_s) else ran.tokens_per_s,
            "met": ran.met,
            "missed": ran.missed,
            "hasty": ran.hasty,
            "clients_mean": ran.within,
            "active": ran.active._asdict(),
            "step": ran.batch._asdict(),
            "pages_most": ran.pages,
            "preemptions": ran.preemptions,
        }
    return {
        "batch": seen.batch,
        "kv_bytes": seen.kv,
        "over_bytes": seen.over,
        "nominal_step": seen.nominal,
        "full_step": seen.full,
        "ceiling_tokens_per_s": seen.ceiling,
        "verdict": line.verdict.word,
        "reason": line.verdict.reason,
        "simulated": simulated,
        **plain_ends(line),
    }


# What the intervals of calibrated steps come to, as a table and as plain data.

ENDS = "⁴ the same simulation with every step at the quick and at the slow end of its interval"


def spans(found: Study) -> Iterator[str | Table]:
    """Steps and latencies with their intervals; nothing where steps are analytical."""
    rows = []
    for line in found.lines:
        if line.step is None or line.trial is None or line.ends is None:
            continue
        step, mine = line.step, (line.trial, line.ends.quick, line.ends.slow)
        figures = [_ms(step), *(_ms([_p95(ran.summary, name) for ran in mine]) for name in ("ttft", "itl"))]
        met = ["met" if ran.met else "missed" for ran in (line.ends.quick, line.ends.slow)]
        rows.append((str(line.candidate.batch), *(cell for middle, ends in figures for cell in (middle, ends)), *met))
    if rows:
        level = f"{LEVEL:.0%}"
        columns = (
            "cap", "step of a full batch ms ³", level, "TTFT P95 ms ²", f"{level} ⁴", "ITL P95 ms ²", f"{level} ⁴", "SLO, quick ⁴",
            "slow ⁴",
        )  # fmt: skip
        yield table(f"{level} intervals of calibrated steps, and what follows from them", columns, rows)
        yield f"³ calibrated: {found.steps.of}. {ENDS}"


def plain_ends(line: Line) -> dict[str, Any]:
    """For --json; seconds. Nothing where steps are analytical."""
    if line.step is None:
        return {}
    ends = None
    if line.ends is not None:
        ends = {
            name: {
                "ttft_p95": _plain(ran.summary, "ttft"),
                "itl_p95": _plain(ran.summary, "itl"),
                "met": ran.met,
                "missed": ran.missed,
            }
            for name, ran in line.ends._asdict().items()
        }
    return {"calibrated_step": line.step._asdict(), "interval": ends}


def _p95(summary: Summary, name: str) -> float:
    return float(getattr(summary, name).p95)


def _plain(summary: Summary, name: str) -> float | None:
    value = _p95(summary, name)
    return None if math.isnan(value) else value


def _ms(span: Any) -> tuple[str, str]:
    """(middle, "quick to slow") of s, in ms."""
    middle, quick, slow = (f"{value * 1e3:,.2f}" for value in span)
    return middle, f"{quick} to {slow}"
