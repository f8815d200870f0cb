"""The tables and plain data of `python -m costmodel decode`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.analytical.step import step_cost
from costmodel.analytical.terms import StepCost
from costmodel.cli.choices import ModelChoice
from costmodel.cli.output import Output, giga, table
from costmodel.hardware.chip import Chip
from costmodel.reconcile import Reconciliation
from costmodel.terminal.tables import Table

ANALYTICAL, COMPILED, MEASURED = "¹ analytical", "² compiled", "³ measured"
SMALL = 1e-3  # of the reported bytes, below which at every batch size a residual shares its line with others like it
TINY = 1e8  # B that XLA reports, below which a thousandth of them is nothing in GB
NOTES = {
    ANALYTICAL: "what a perfect program would move and compute (costmodel.analytical.step)",
    COMPILED: "the optimised program's text: as XLA counts it, with loop trip counts, and as memory traffic",
    MEASURED: "this machine's clock",
}


def lesson(head: Sequence[str], model: ModelChoice, chip: Chip, context: int, batches: Sequence[int], form: str) -> Output:
    """The nominal table: each weight once a step, each row's KV once, 2 FLOP a parameter and token."""
    rows = []
    count = 8.0e9 if model.name == "llama-3-8b" else None  # the round 8B of the lesson; another model has its own
    for batch in batches:
        cost = step_cost(model.best, batch=batch, context=context, chip=chip, detail="nominal", parameters=count)
        rows.append(
            {
                "batch": batch,
                "memory_ms": float(cost.memory_seconds()) * 1e3,
                "compute_ms": float(cost.compute_seconds()) * 1e3,
                "flop_per_byte": float(cost.intensity),
                "tokens_per_second": float(cost.tokens_per_second()),
                "bound": cost.bound(),
            }
        )
    cells = [
        (
            str(r["batch"]),
            f"{r['memory_ms']:.2f}",
            f"{r['compute_ms']:.2f}",
            f"{r['flop_per_byte']:.2f}",
            f"{r['tokens_per_second']:,.1f}",
            r["bound"],
        )
        for r in rows
    ]
    view = table(f"nominal {ANALYTICAL}", ("batch", "t_mem ms", "t_comp ms", "FLOP/B", "tok/s", "bound"), cells)
    told = f"{count / 1e9:.1f}e9 parameters" if count else "all parameters"
    note = f"{ANALYTICAL}, nominal: {told}, each read once a step; each row's KV read once; 2 FLOP a parameter and token"
    return Output({"heading": list(head), "batches": rows}, [*head, view, note], rows, form)


def terms_of(head: Sequence[str], costs: Mapping[int, StepCost], form: str) -> Output:
    """The analytical model alone: totals by batch, and the terms of the last one."""
    rows = [analytical_of(batch, cost) for batch, cost in costs.items()]
    columns = ("batch", "GFLOP", "GB", "weights GB", "KV GB", "FLOP/B", "memory ms", "compute ms", "step ms", "bound", "tok/s")
    cells = [
        (
            str(r["batch"]),
            giga(r["flops"]),
            giga(r["bytes"]),
            giga(r["weight_bytes"]),
            giga(r["kv_bytes"]),
            f"{r['intensity']:.2f}",
            f"{r['memory_seconds'] * 1e3:.3f}",
            f"{r['compute_seconds'] * 1e3:.3f}",
            f"{r['seconds'] * 1e3:.3f}",
            r["bound"],
            f"{r['tokens_per_second']:,.1f}",
        )
        for r in rows
    ]
    batch, cost = list(costs.items())[-1]
    terms = [(t.name, t.component, giga(float(t.flops)), giga(float(t.bytes)), t.formula, t.source) for t in cost.terms]
    parts: list[str | Table] = [
        *head,
        table(f"totals {ANALYTICAL}", columns, cells),
        table(
            f"terms at batch {batch} {ANALYTICAL}",
            ("term", "component", "GFLOP", "GB", "formula", "source"),
            terms,
            left=2,
            words=2,
        ),
        f"{ANALYTICAL}: {NOTES[ANALYTICAL]}",
    ]
    data = {"heading": list(head), "batches": [{**r, "terms": plain_terms(costs[r["batch"]])} for r in rows]}
    return Output(data, parts, rows, form)


def witnesses(found: Sequence[Reconciliation]) -> list[Table | str]:
    """The figures of all witnesses, their ratios, and what they come to in time."""
    clock = any(row.measured for row in found)
    columns = [
        "batch", "GFLOP ¹", "XLA ²", "trips ²", "traffic ²", "GB ¹", "XLA ²", "trips ²", "traffic ²",
        "XLA/¹", "trips/¹", "traffic/¹", "ms ¹", "ms ²", "bound",
    ]  # fmt: skip
    cells = []
    for row in found:
        cost, compiled = row.analytical, row.compiled
        costs = (compiled.reported, compiled.with_trips, compiled.traffic)
        mark = "+" if compiled.unpriced else ""
        line = [
            str(int(cost.tokens)),
            giga(float(cost.flops)),
            *(giga(c.flops) + mark for c in costs),
            giga(float(cost.bytes)),
            *(giga(c.bytes) + mark for c in costs),
            *(f"{row.ratio(name):.3f}" for name in ("reported", "with_trips", "traffic")),
            f"{float(cost.seconds()) * 1e3:.3f}",
            f"{row.compiled_seconds * 1e3:.3f}",
            str(cost.bound()),
        ]
        if clock:
            line.append(f"{row.measured.seconds * 1e3:.2f}" if row.measured else "-")
        cells.append(line)
    if clock:
        columns.append("ms ³")
    first = found[0].compiled
    words = ", ".join(f"{name.replace('_', ' ')} {word}" for name, word in first.confidence.items())
    notes = [
        f"{ANALYTICAL}: {NOTES[ANALYTICAL]}; ms at the chip's roofline",
        f"{COMPILED}: {NOTES[COMPILED]}; {first.basis}; {words}; ms is the roofline time of the traffic; /¹ are ratios of bytes",
    ]
    if first.trips:
        notes.append("loop counts used: " + ", ".join(f"{name} {count:g}" for name, count in list(first.trips.items())[:8]))
    if first.unpriced:
        notes.append(f"+ at least: custom calls without a price: {', '.join(first.unpriced)}")
    notes += [f"{MEASURED} at batch {int(row.analytical.tokens)}: {row.measured.note}" for row in found if row.measured]
    return [table("three witnesses", columns, cells), *notes]


def waterfall(found: Sequence[Reconciliation]) -> Table:
    """From the analytical bytes to those that XLA reports, every step by name, a column a batch, in GB (kB of a tiny model)."""
    unit, scale = ("kB", 1e6) if max(row.compiled.reported.bytes for row in found) < TINY else ("GB", 1.0)
    rows: list[list[str]] = [["analytical ¹", *(giga(scale * float(row.analytical.bytes)) for row in found)]]
    rules = []
    stages = (
        ("analytical and traffic", "traffic"),
        ("traffic and with trips", "with_trips"),
        ("with trips and reported", "reported"),
    )
    titles = {"traffic": "= memory traffic ²", "with_trips": "= XLA with trip counts ²", "reported": "= XLA as reported ²"}
    for between, total in stages:
        steps = [{r.name: r.amount for r in row.residuals if r.between == between} for row in found]
        shares = {name: max(map(_share, steps, found, [name] * len(found))) for each in steps for name in each}
        for name in sorted((name for name in shares if shares[name] >= SMALL), key=lambda name: -shares[name]):
            rows.append([f"  {name}", *(_signed(scale * each.get(name, 0.0)) for each in steps)])
        rest = [name for name in shares if shares[name] < SMALL]
        if rest:
            sums = (scale * sum(each.get(name, 0.0) for name in rest) for each in steps)
            rows.append([f"  {len(rest)} smaller ones (--json names them)", *map(_signed, sums)])
        rules.append(len(rows))
        rows.append([titles[total], *(giga(scale * getattr(row.compiled, total).bytes) for row in found)])
    columns = (unit, *(f"batch {int(row.analytical.tokens)}" for row in found))
    return table("waterfall of bytes", columns, rows, rules=rules)


def _share(steps: Mapping[str, float], row: Reconciliation, name: str) -> float:
    """A residual over the bytes that XLA reports."""
    return abs(steps.get(name, 0.0)) / (row.compiled.reported.bytes or 1.0)


def _signed(amount: float) -> str:
    return "-" if amount == 0 else ("+" if amount > 0 else "") + giga(amount)


def analytical_of(batch: int, cost: StepCost) -> dict[str, Any]:
    """The totals of a step as plain data, in FLOP, B and s."""
    return {
        "batch": batch,
        "witness": "analytical",
        "flops": float(cost.flops),
        "bytes": float(cost.bytes),
        "weight_bytes": float(cost.weight_bytes),
        "kv_bytes": float(cost.kv_bytes),
        "intensity": float(cost.intensity),
        "memory_seconds": float(cost.memory_seconds()),
        "compute_seconds": float(cost.compute_seconds()),
        "seconds": float(cost.seconds()),
        "bound": str(cost.bound()),
        "tokens_per_second": float(cost.tokens_per_second()),
    }


def plain_terms(cost: StepCost) -> list[dict[str, Any]]:
    """The terms as plain data."""
    figures = ("flops", "bytes", "link_bytes")
    return [{key: float(value) if key in figures else value for key, value in row.items()} for row in cost.table()]


def rows_of(row: Reconciliation) -> dict[str, Any]:
    """A batch as plain data: all witnesses and residuals."""
    compiled, batch = row.compiled, int(row.analytical.tokens)
    words = compiled.confidence
    witness = {
        name: {"witness": "compiled", "confidence": words[name], **dataclasses.asdict(getattr(compiled, name))}
        for name in words
    }
    measured = row.measured
    return {
        "batch": batch,
        "analytical": {**analytical_of(batch, row.analytical), "terms": plain_terms(row.analytical)},
        **witness,
        "basis": compiled.basis,
        "loop_counts": dict(compiled.trips),
        "unpriced": list(compiled.unpriced),
        "unattributed": compiled.unattributed,
        "link_bytes": dict(compiled.link_bytes),
        "compiled_seconds": row.compiled_seconds,
        "ratios": {
            name: {unit: row.ratio(name, unit) for unit in ("flops", "bytes")} for name in ("reported", "with_trips", "traffic")
        },
        "residuals": [dataclasses.asdict(r) for r in row.residuals],
        "flop_residuals": [dataclasses.asdict(r) for r in row.flop_residuals],
        "unexplained": row.unexplained,
        "measured": None
        if measured is None
        else {
            "witness": "measured",
            "seconds": measured.seconds,
            "p5": measured.timings.percentile(5),
            "p95": measured.timings.p95,
            "runs": measured.timings.count,
            "contention": measured.contention,
            "host": measured.host,
            "date": measured.date,
        },
    }
