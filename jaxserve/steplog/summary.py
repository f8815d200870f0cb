"""What a run came to, in figures: how full its steps were, what happened to requests, and what steps took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from costmodel.hardware.clock import Timings
from costmodel.terminal.tables import Table
from jaxserve.scheduling.names import memory_json
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.scheduling.token_counts import TokenCounts
from jaxserve.steplog.events import Clock
from models.errors import UserError


class Summary(Observer):
    """Sums over a run, of an engine, a simulation or a replay. Percentiles are of nearest rank: always a value that happened."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self._tokens = TokenCounts()
        self._most_rows = 0
        self._totals: list[int] = []  # pages or slots of each worker
        self._peaks: list[int] = []
        self._records: list[StepRecord] = []
        self._linked = 0.0  # s that hand-offs take on their link, by its bandwidth and latency

    def started(self, policy: Policy, state: State) -> None:
        memories = [memory_json(worker.memory) for worker in state.workers]
        self._totals = [memory["pages" if memory["kind"] == "paged" else "total"] for memory in memories]
        self._peaks = [0] * len(self._totals)

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        self._count["requests"] += 1
        self._count["refused"] += refused is not None

    def cancelled(self, state: State, id: int, now: float) -> None:
        self._count["cancelled"] += 1

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        self._peak(after)
        self._count["steps"] += bool(plan.ids)
        self._count["rows"] += len(plan.ids)
        self._most_rows = max(self._most_rows, len(plan.ids))
        self._tokens = TokenCounts(*map(sum, zip(self._tokens, TokenCounts.of(plan, after), strict=True)))
        for name in ("admitted", "preempted", "expired", "hand_offs"):
            self._count[name] += len(getattr(plan, name))
        self._count["hand_off_bytes"] += sum(move.bytes for move in plan.hand_offs)
        self._linked += sum(move.seconds for move in plan.hand_offs)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self._peak(after)
        self._count["drawn"] += sum(map(len, outcome.tokens))
        self._ends.update(end.reason for end in ends)

    def stepped(self, record: StepRecord) -> None:
        self._records.append(record)

    def _peak(self, state: State) -> None:
        self._peaks = [max(peak, worker.memory.in_use) for peak, worker in zip(self._peaks, state.workers, strict=True)]

    def to_json(self, clock: Clock) -> dict[str, Any]:
        """Counts, and of the steps that were clocked ms and ratios; null where there were none.

        Args:
          clock: of those times: they are "measured" on the machine's, "simulated" on a virtual one.
        """
        count, steps = self._count, self._count["steps"]
        names = ("requests", "refused", "cancelled", "admitted", "preempted", "expired", "hand_offs", "hand_off_bytes")
        return {
            **{name: count[name] for name in names},
            "hand_off_link_seconds": self._linked,
            "ended": dict(self._ends),
            "steps": steps,
            "rows_mean": count["rows"] / steps if steps else None,
            "rows_most": self._most_rows,
            "tokens": {**self._tokens._asdict(), "drawn": count["drawn"]},
            "pages_peak": self._peaks,
            "pages": self._totals,
            "clocked": self._clocked("measured" if clock == "monotonic" else "simulated"),
        }

    def _clocked(self, witness: str) -> dict[str, Any] | None:
        records = self._records
        if not records:
            return None
        measured, host = _ms([r.measured for r in records]), _ms([r.host for r in records])
        priced = [(r.predicted, r.measured) for r in records if r.predicted]
        ratios = Timings(tuple(clock / model for model, clock in priced)) if priced else None
        padded, rows = sum(r.padded for r in records), sum(r.rows for r in records)
        return {
            "witness": witness,
            "steps": len(records),
            "padded_share": padded / (rows + padded) if rows + padded else None,
            "predicted_steps": len(priced),
            "predicted_ms_median": _ms([model for model, _ in priced]).median if priced else None,
            "measured_ms_median": measured.median,
            "ratio_median": ratios.median if ratios else None,
            "ratio_p90": ratios.percentile(90) if ratios else None,
            "host_ms_median": host.median,
            "host_ms_p99": host.percentile(99),
        }

    def table(self, clock: Clock) -> Table:
        """For people. Each figure is marked with its witness."""
        found = self.to_json(clock)
        table = Table("what", "how much", "witness")
        tokens, ended = found["tokens"], ", ".join(f"{why} {n}" for why, n in found["ended"].items())
        peaks = ", ".join(f"{peak} of {total}" for peak, total in zip(found["pages_peak"], found["pages"], strict=True))
        mean = "none" if found["rows_mean"] is None else f"{found['rows_mean']:.1f}, {found['rows_most']} at most"
        requests = ", ".join(
            [str(found["requests"]), *(f"{found[name]} {name}" for name in ("refused", "expired", "cancelled"))]
        )
        moves = f"{found['hand_offs']}, {found['hand_off_bytes']} B"
        for what, value in (
            ("requests", requests),
            ("ended", ended or "none"),
            ("steps", str(found["steps"])),
            ("rows a step", mean),
            *((f"{kind} tokens", str(tokens[kind])) for kind in tokens),
            ("admissions", str(found["admitted"])),
            ("preemptions", str(found["preempted"])),
            *((("hand-offs", moves),) if found["hand_offs"] else ()),
            ("pages or slots in use, peak" + (" of each worker" if len(self._peaks) > 1 else ""), peaks),
        ):
            table.add_row(what, value, "counted")
        if found["hand_offs"]:
            table.add_row("hand-offs on the link, ms", f"{1e3 * self._linked:.3f}", "analytical")
        if clocked := found["clocked"]:
            for row in _times(clocked):
                table.add_row(*row)
        return table


def _times(clocked: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of the table about steps that were clocked."""
    n, priced, witness = clocked["steps"], clocked["predicted_steps"], clocked["witness"]
    if clocked["padded_share"] is not None:
        yield "padded share of the programs' rows", f"{clocked['padded_share']:.1%}", "counted"
    if priced:
        yield "step, ms: median", f"{clocked['predicted_ms_median']:.3f} (n = {priced})", "analytical"
    yield "step, ms: median", f"{clocked['measured_ms_median']:.3f} (n = {n})", witness
    if priced:
        ratios = f"{clocked['ratio_median']:.3f}, {clocked['ratio_p90']:.3f} (n = {priced})"
        yield f"step, {witness} / analytical: median, P90", ratios, "both"
    few = "" if n >= 100 else ", too few for P99: the most"
    host = f"{clocked['host_ms_median']:.3f}, {clocked['host_ms_p99']:.3f} (n = {n}{few})"
    yield "host gap, ms: median, P99", host, witness


def _ms(seconds: list[float]) -> Timings:
    return Timings(tuple(1e3 * value for value in seconds))
