"""What the figures of a simulation are of, in lines before its tables, and what its steps came to, in a table after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costmodel.terminal.tables import Table
from jaxserve.deployment.deployment import Deployment
from jaxserve.deployment.step_times import LEVEL, decode_plan
from jaxserve.load.result import Run
from jaxserve.scheduling.registry import LINK

NO_SERVER = "No server ran: the scheduler that serves decided on a virtual clock (witness: simulated)"


def header(found: Deployment) -> Iterator[str]:
    """Line by line, after `NO_SERVER`."""
    asked, placement, pool = found.asked, found.placement, found.pool
    settings, policy = asked.policy, asked.policy.policy
    yield f"{found.chosen.name} on {placement.degree} x {placement.chip.name}, weights {placement.dtype}, KV {placement.kv.name}"
    yield found.fit.verdict
    budget = f", {asked.budget} tokens a step" if asked.cuts else ""
    each = " on each worker" if settings.workers > 1 else ""
    yield f"policy {policy}: {asked.rows} sequences at once{budget}{each}, prefix cache {'on' if found.prefix else 'off'}"
    if settings.workers > 1:
        prefill = settings.prefill_workers or 1
        apart = f"{prefill} to prefill, {settings.workers - prefill} to decode"
        link = f"KV goes over a link of {settings.link or LINK:g} GB/s"
        yield f"{settings.workers} workers ({apart}), each on chips of its own as above; {link}"
    free = f", {asked.headroom:.1%} of {pool.pages:,} kept free" if pool.usable < pool.pages else ""
    yield f"KV pool{each} {pool.size / 2**30:.1f} GiB: {pool.usable:,} pages of {pool.page} tokens{free}"
    host = "" if found.steps.host else "; of the device alone, nothing of the host"
    yield f"step times: {found.steps.witness}, {found.steps.source}{host}"
    yield full_step(found)


def full_step(found: Deployment) -> str:
    """What a step of all sequences takes, as long as any gets, so that step times can be checked by eye."""
    steps, rows = found.steps, found.asked.rows
    plan = decode_plan(rows, found.longest)
    said = f"such as {steps.seconds(plan) * 1e3:.2f} ms for one token of each of {rows} sequences that hold {found.longest:,} tokens"
    if steps.quick is None or steps.slow is None:
        return said
    return f"{said}; {LEVEL:.0%} of such steps take {steps.quick(plan) * 1e3:.2f} to {steps.slow(plan) * 1e3:.2f} ms"


def steps_table(runs: Sequence[Run]) -> Table:
    """What the steps of every run came to."""
    table = Table(title="Steps (simulated)")
    for name in ("load", "steps", "sequences of a step, mean", "most", "KV pages, most", "preemptions", "workers busy"):
        table.add_column(name, justify="left" if name == "load" else "right")
    for run in runs:
        found = run.settings["totals"]
        rows = found["rows"] or {"mean": 0.0, "most": 0}
        pages = f"{found['most_pages']:,} of {run.pool.units:,}" if run.pool else f"{found['most_pages']:,}"
        busy = ", ".join(f"{share:.0%}" for share in found.get("busy", ())) or "unknown"
        table.add_row(
            str(run.settings["load"]),
            f"{found['steps']:,}",
            f"{rows['mean']:.1f}",
            str(rows["most"]),
            pages,
            str(found.get("preemptions", "unknown")),
            busy,
        )
    return table


def idle_faults(runs: Sequence[Run]) -> Iterator[str]:
    """Faults of which nothing came, a line for each."""
    for run in runs:
        for each in run.settings["nothing_came_of"]:
            yield f"nothing came of a fault in {run.settings['load']}: {each}"


def alerts(runs: Sequence[Run]) -> tuple[str, ...]:
    """What a reader of a page has to know before any figure: that no server ran, and what went wrong on purpose."""
    first = runs[0].settings
    steps = first["step_times"]
    faults = (f"Fault: {each}." for each in first["faults"])
    return (
        f"{NO_SERVER}, with {steps['witness']} step times ({steps['source']}).",
        *faults,
        *(f"{line[0].upper()}{line[1:]}." for line in idle_faults(runs)),
    )


def title(runs: Sequence[Run]) -> str:
    """Of a page."""
    first = runs[0].settings
    return (
        f"jaxserve: {first['model']} on {first['chip']}, simulated"
        if "model" in first
        else f"jaxserve: {first['load']}, simulated"
    )
