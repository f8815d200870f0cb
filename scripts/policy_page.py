"""What `scripts/policies_on_a_trace.py` writes of its runs: tables, and what to look for in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxserve.load.percentile import RULE
from scripts.experiment import table
from scripts.policy_runs import Asked, Served

COLUMNS = (
    "*Rows a step* ran in it. *Slots locked idle* are places of a batch whose row had ended, which nobody else could have until the batch "
    "was over; they cost no bandwidth, for weights are read once a step whatever the rows."
)
LOOK = (
    "What to look for. *Static* and *dynamic* let nobody in until the longest answer of the batch has ended: TTFT is about the length of a "
    "batch, and the slots of those that ended earlier stand idle. *Continuous* lets requests in at every step, so TTFT falls; whoever "
    "decodes beside a whole prompt waits for it, which shows in the upper percentiles of ITL. *Chunked* cuts prompts up, so that no gap is "
    "longer than a step of its budget, as a rule for a TTFT that is longer where prompts queue; "
    "the tables say whether it was so here."
)
HEAD = ("policy", "answered/s", "tokens/s", "TTFT P50, ms", "TTFT P95, ms", "ITL P50, ms", "ITL P95, ms", "ITL P99, ms", "E2E P50, s",
        "rows a step", "slots locked idle")  # fmt: skip


def rows_of(served: Served) -> list[list[str]]:
    """Of the table."""
    lines = []
    for name, run in served.runs.items():
        s, full = run.summary, served.slots[name]
        times = [s.ttft.p50, s.ttft.p95, s.itl.p50, s.itl.p95, s.itl.p99]
        lines.append(
            [
                name,
                f"{s.requests_per_s:.2f}",
                f"{s.tokens_per_s:,.0f}",
                *(f"{1e3 * value:,.1f}" for value in times),
                f"{s.e2e.p50:,.2f}",
                f"{full.useful / max(full.steps, 1):.1f}",
                f"{full.padded_share:.1%}",
            ]
        )
    return lines


def page(asked: Asked, simulated: Sequence[Served], measured: Served | None) -> list[str]:
    """The paragraphs of the experiment."""
    found = [
        f"The first {asked.requests:,} requests of {asked.trace.name} with their own lengths and arrivals, the same for every policy.",
        COLUMNS,
        f"Percentiles: {RULE}. TTFT counts from the intended arrival.",
        f"## Simulated: {asked.model} on {asked.chip}, {asked.rows} rows, {asked.kv_pool / 2**30:g} GiB of KV",
        "Step times: analytical, the roofline of `costmodel.step_cost`, without launches, host or padding. Chunked runs "
        f"{asked.budget} tokens a step; dynamic holds a request back for {1e3 * asked.delay:g} ms at most.",
    ]
    for served in simulated:
        found += [f"Times × {served.scale:g}, {_offered(served):.2f} requests/s offered:", table(HEAD, rows_of(served))]
    if measured is not None:
        every = next(iter(measured.runs.values()))
        lengths = np.array([[record.prompt, record.output] for record in every.records]).mean(0)
        busy = ", ".join(f"{name} {'unknown' if c is None else f'{c:.2f}'}" for name, c in measured.contention.items())
        settings = every.settings
        found += [
            f"## Measured: {settings['model']} on this machine",
            f"{every.summary.requests} requests, times × {measured.scale:g} ({_offered(measured):.2f} requests/s offered), lengths × "
            f"{settings['source']['length_scale']:g} (means {lengths[0]:.0f} and {lengths[1]:.0f} tokens), {settings['rows']} rows, "
            f"chunked with {settings['budget']} tokens a step, {settings['dtype']}; one run of each policy, after a warm-up of "
            f"{settings['warmed_by']} requests. Contention of the machine meanwhile (0 is quiet): {busy}.",
            table(HEAD, rows_of(measured)),
            "With so few requests P95 and P99 of TTFT are little more than the largest seen.",
        ]
    return [*found, LOOK]


def _offered(served: Served) -> float:
    """Requests a second that come in."""
    records = next(iter(served.runs.values())).records
    return len(records) / max(record.intended for record in records)
