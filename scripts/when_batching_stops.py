"""When batching stops helping: KV-bound at long context, prefill-bound, and sparse arrivals.

Three workloads of one model on one chip, simulated with the real scheduler at rising caps; step times are the full analytical roofline.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from costmodel.arch.catalog import find_architecture
from costmodel.capacity import fit
from costmodel.concurrency.forming import Forming
from costmodel.hardware.chips import find_chip
from costmodel.sizing import Placement
from costmodel.terminal import cli
from jaxserve.predict.analytical import Analytical
from jaxserve.sizing.traffic import poisson
from jaxserve.sizing.trial import Configuration, saturated_throughput, trial
from scripts.experiment import Experiment, table
from scripts.options import whole

CAPS = (1, 4, 16, 64, 128, 256)
TURNS, LEAST = 3, 8  # requests of a KV-bound run: so many times as many as run at once, and no fewer
CONTEXTS = (512, 2048, 8192)
ANSWER, PROMPT = 128, 4096
RATES = (0.1, 0.5)  # requests a second of the sparse case
PAGE, RESERVE = 16, 0.1


@dataclasses.dataclass(frozen=True)
class Bench:
    """A model on a chip, and as much KV as they leave room for.

    Attributes:
      pages: of the pool.
      token: B of KV of a token; weights: B of them, nominal.
    """

    placement: Placement
    seconds: Analytical
    pages: int
    token: float
    weights: float

    @classmethod
    def of(cls, model: str, chip: str) -> Bench:
        placement = Placement(find_architecture(model), find_chip(chip))
        room = fit(placement.model, placement.chip, reserve=RESERVE, rows=max(CAPS), tokens=512).room
        pool = placement.pool(room, PAGE)
        return cls(placement, Analytical(placement.model, placement.chip), pool.pages, pool.token, 2 * placement.parameters)

    def configuration(self, cap: int, policy: str = "chunked") -> Configuration:
        return Configuration(policy, cap, 512, self.pages, PAGE)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line: numbers by column."""

    values: dict[str, float | int | str]

    def cells(self, columns: list[str]) -> list[str]:
        return [_cell(self.values[column]) for column in columns]


def kv_bound(bench: Bench, context: int) -> list[Row]:
    """Full sequences of one length, a quarter of it the answer, never short of work: tokens a second as the cap rises.

    Without end of the batch, decode would draw bandwidth / (KV of a sequence) tokens a second: every row reads its own cache, and the
    weights, which batching shares, cost nothing any more.
    """
    rows, fits = [], bench.pages // -(-context // PAGE)
    for cap in CAPS:
        count = max(TURNS * min(cap, fits), LEAST)
        traffic = poisson(1.0, context - context // 4, context // 4, count, 0)
        demand = traffic.demand
        seen = saturated_throughput(bench.configuration(cap), traffic, bench.seconds, count)
        kv = bench.token * demand.attended  # B that a row reads in a step
        active = seen.batch.mean
        rows.append(
            Row(
                {
                    "context": context,
                    "cap": cap,
                    "rows a step": round(active, 1),
                    "tok/s": round(seen.tokens_per_s),
                    "of the KV limit": f"{seen.tokens_per_s * kv / float(bench.placement.chip.bandwidth):.0%}",
                    "KV of the bytes": f"{kv * active / (kv * active + bench.weights):.0%}",
                    "ITL P95 ms": round(seen.itl * 1e3, 2),
                    "full sequences that fit": fits,
                }
            )
        )
    return rows


def prefill_bound(bench: Bench, requests: int) -> list[Row]:
    """Long prompts, two tokens each: a prompt is a batch of its own tokens already, so more of them only wait for each other."""
    rows = []
    alone = bench.placement.prefill(PROMPT)
    traffic = poisson(0.7 / alone, PROMPT, 2, requests, 0)
    for cap in (1, 2, 4, 8, 16, 32):
        for policy in ("continuous", "chunked"):
            seen = trial(bench.configuration(cap, policy), traffic, bench.seconds, None)
            full = saturated_throughput(bench.configuration(cap, policy), traffic, bench.seconds, requests)
            rows.append(
                Row(
                    {
                        "policy": policy,
                        "cap": cap,
                        "prompts/s, flooded": round(full.tokens_per_s / 2, 2),
                        "of one at a time": f"{full.tokens_per_s / 2 * alone:.0%}",
                        "TTFT P50 ms": round(seen.summary.ttft.p50 * 1e3, 1),
                        "TTFT P95 ms": round(seen.summary.ttft.p95 * 1e3, 1),
                    }
                )
            )
    return rows


def sparse(bench: Bench, rate: float, requests: int) -> list[Row]:
    """Requests that seldom meet: whatever the cap, a step runs about one; holding them back for company costs what Erlang says."""
    rows, traffic = [], poisson(rate, 256, ANSWER, requests, 0)
    for cap in (1, 8, 64):
        seen = trial(bench.configuration(cap), traffic, bench.seconds, None)
        forming = Forming(rate, cap)
        rows.append(
            Row(
                {
                    "requests/s": rate,
                    "cap": cap,
                    "rows a step": round(seen.batch.mean, 2),
                    "TTFT P95 ms": round(seen.summary.ttft.p95 * 1e3, 1),
                    "ITL P95 ms": round(seen.summary.itl.p95 * 1e3, 2),
                    "busy": f"{seen.run.busy[0] / seen.run.seconds:.1%}",
                    "mean wait for a full batch s": round(forming.mean, 2),
                    "P95 of the first's s": round(forming.quantile_first(0.95), 2) if cap > 1 else 0,
                }
            )
        )
    return rows


@click.command(epilog="Example: python -m scripts.when_batching_stops --out docs/experiments/when-batching-stops.md")
@click.option("--model", default="llama-3-8b", show_default=True, help="A name (python -m costmodel models).")
@click.option("--chip", default="h100", show_default=True, help="A name (python -m costmodel chips).")
@click.option("--requests", type=whole(20), default=300, show_default=True, help="Of each run but the KV-bound ones.")
@click.option("--out", type=Path, help="Write the page there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(model: str, chip: str, requests: int, out: Path | None, as_json: bool) -> None:
    """Simulate three loads under which a larger batch brings little or nothing."""
    experiment = Experiment(f"When batching stops helping: {model} on {chip}", out)
    bench = Bench.of(model, chip)
    contexts = [context for context in CONTEXTS if context <= bench.placement.model.max_positions]
    jobs: list[tuple[str, Callable[[], list[Row]]]] = [
        *(("kv", functools.partial(kv_bound, bench, context)) for context in contexts),
        ("prefill", functools.partial(prefill_bound, bench, requests)),
        *(("sparse", functools.partial(sparse, bench, rate, requests)) for rate in RATES),
    ]
    found: dict[str, list[Row]] = {"kv": [], "prefill": [], "sparse": []}
    with cli.Bars() as bars:
        advance = bars.bar("simulating, workloads", len(jobs))
        for name, job in jobs:
            found[name] += job()
            advance(1)
    if as_json:
        rows = {name: [row.values for row in lines] for name, lines in found.items()}
        print(json.dumps({**experiment.facts, "model": model, "chip": chip, "requests": requests, **rows}))
        return
    experiment.write(*_page(bench, found, requests))


def _page(bench: Bench, found: dict[str, list[Row]], requests: int) -> list[str]:
    chip = bench.placement.chip
    return [
        f"Simulated: the scheduler that serves, on a virtual clock, chunked with 512 tokens a step where nothing else is said; steps take "
        f"the full analytical roofline of a {chip.name}. {bench.pages:,} pages of {PAGE} tokens are what weights, workspace and "
        f"{RESERVE:.0%} for others leave.",
        "## KV-bound at long context",
        "Weights are read once for all rows, KV once for each of them. So tokens a second can't exceed bandwidth over the KV of a sequence "
        "(*the KV limit*, analytical), however large the batch. All requests are there at once, three for each that runs; a quarter of "
        "the context is the answer. At short context the prompts' arithmetic stops the gain first; at long context KV is most of the bytes "
        "early, and then the pool is full: a larger cap is never reached.",
        _table(found["kv"]),
        "## Prefill-bound",
        f"Prompts of {PROMPT:,} tokens and answers of 2, {requests} requests. One prompt is a batch of {PROMPT:,} rows, far beyond the "
        "ridge: a single one keeps the arithmetic busy, and more of them side by side mostly wait for each other. *Flooded*: all are "
        "there at once. TTFT is under Poisson arrivals at 0.7 of what one at a time would keep up with.",
        _table(found["prefill"]),
        "## Sparse arrivals",
        f"Prompts of 256 and answers of {ANSWER} tokens that seldom overlap, {requests} requests: a step runs about one row whatever the "
        "cap, so there is nothing to share the weights with. To hold requests back until a batch of the cap's size is full would cost the "
        "waits in the last two columns (Erlang, analytical).",
        _table(found["sparse"]),
    ]


def _table(rows: list[Row]) -> str:
    columns = list(rows[0].values)
    return table(columns, [row.cells(columns) for row in rows])


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


if __name__ == "__main__":
    cli.run(main)
