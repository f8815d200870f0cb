"""What a run cost, program by program: analytical beside compiled beside measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from costmodel.analytical.nominal import nominal_of_model
from costmodel.analytical.terms import StepCost
from costmodel.hardware.ceilings import Ceilings
from costmodel.hardware.clock import Timings
from costmodel.ledger.ledger import Ledger
from costmodel.terminal.tables import Table
from jaxserve.engine.model import Model
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.programs.program_set import Program, Programs
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult


@dataclasses.dataclass(frozen=True)
class ProgramRun:
    """A program that ran once within a step, and what it ran.

    Attributes:
      contexts: tokens in the cache after it, of each live row.
      counts: tokens that it ran, of each.
      seconds: from its dispatch until its tokens are on the host; of a step that ran several programs of one shape, an equal part.
      host_seconds: the gap that the host left before the step, in equal parts too.
      decodes: it went on with answers; False where it ran prompts.
    """

    program: Program
    contexts: tuple[int, ...]
    counts: tuple[int, ...]
    seconds: float
    host_seconds: float
    decodes: bool = True

    @property
    def live(self) -> int:
        """Rows that did work; pieces of prompts are rows too."""
        return len(self.contexts)

    @property
    def tokens(self) -> int:
        """Live tokens."""
        return sum(self.counts)

    def trips(self) -> dict[str, float]:
        """How often each loop of the program ran."""
        return self.program.trips([list(zip(self.contexts, self.counts, strict=True))])


class ProgramRuns(Observer):
    """Takes down what every program of a run ran.

    Args:
      programs: of the engine.
      ladder: which of them ran what.
    """

    def __init__(self, programs: Programs, ladder: Buckets):
        self.found: list[ProgramRun] = []
        self._programs, self._ladder = programs, ladder
        self._plan: Plan | None = None

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self._plan = plan

    def stepped(self, record: StepRecord) -> None:
        assert self._plan is not None
        each = dispatch(self._plan, self._ladder)
        for run in each:
            rows = [(start + 1, 1) for start in run.starts] or [
                (piece.start + piece.tokens, piece.tokens) for piece in run.pieces
            ]
            contexts, counts = zip(*rows, strict=True)
            assert run.bucket is not None
            seconds, host = record.measured / len(each), record.host / len(each)
            self.found.append(ProgramRun(self._programs[run.bucket], contexts, counts, seconds, host, record.prefill == 0))


Price = Callable[[Program, Mapping[str, float]], Ledger]  # (program, how often its loops ran)


@dataclasses.dataclass(frozen=True)
class ProgramReport:
    """One program over all its steps of a run. Per-step figures are means, times are medians.

    `weight_bytes`, `kv_bytes` and `flops` are nominal (each weight read once, each live row's KV read once, 2 FLOP a parameter and
    live token); `xla_*` are XLA's own counts of this executable, padding included, a loop's body counted once, None where unknown.
    `trip_flops` and `traffic_bytes` are read from its ledger, with its loops run as often as in the middle one of its steps by context
    (`loop_counts`); None where they were not asked for.
    """

    program: str
    width: int
    live_rows: float
    padded_rows: float
    steps: int
    step_ms: float
    step_ms_p95: float
    host_ms: float
    tokens_per_second: float
    weight_bytes: float
    kv_bytes: float
    flops: float
    xla_flops: float | None
    xla_bytes: float | None
    xla_loops: int
    trip_flops: float | None
    traffic_bytes: float | None
    loop_counts: dict[str, float]
    bytes_per_second: float
    bandwidth_fraction: float
    flops_per_second: float
    peak_fraction: float

    @classmethod
    def of(
        cls, records: Sequence[ProgramRun], model: Model, kv_itemsize: int, limits: Ceilings, price: Price | None
    ) -> ProgramReport:
        """Summarise the steps of one program."""
        program, n = records[0].program, len(records)
        timings = Timings(tuple(r.seconds for r in records))
        host = Timings(tuple(r.host_seconds for r in records))
        nominal = [_nominal(r, model, kv_itemsize) for r in records]
        weights, kv, flops = (sum(getattr(s, name) for s in nominal) / n for name in ("weight_bytes", "kv_bytes", "flops"))
        live = sum(r.live for r in records) / n
        rows = sum(rows for rows, _ in program.bucket.shape)
        peak = limits.matmul_bf16 if model.dtype == "bfloat16" else limits.matmul_f32
        middle = sorted(records, key=lambda r: max(r.contexts))[n // 2]
        counts = middle.trips() if price else {}
        traffic = price(program, counts).traffic if price else None
        moved, computed = (weights + kv) / timings.median, flops / timings.median
        return cls(
            program=program.bucket.name,
            width=program.bucket.width,
            live_rows=live,
            padded_rows=rows - live,
            steps=n,
            step_ms=timings.median * 1e3,
            step_ms_p95=timings.p95 * 1e3,
            host_ms=host.median * 1e3,
            tokens_per_second=sum(r.tokens for r in records) / (timings.total + host.total),
            weight_bytes=weights,
            kv_bytes=kv,
            flops=flops,
            xla_flops=program.totals.flops,
            xla_bytes=program.totals.bytes_accessed,
            xla_loops=program.loops,
            trip_flops=traffic.flops if traffic else None,
            traffic_bytes=traffic.bytes if traffic else None,
            loop_counts=counts,
            bytes_per_second=moved,
            bandwidth_fraction=moved / limits.read_bandwidth,
            flops_per_second=computed,
            peak_fraction=computed / peak,
        )


def _nominal(record: ProgramRun, model: Model, kv_itemsize: int) -> StepCost:
    itemsize = model.weight_bytes / model.parameters  # norms stay f32, so a hair above the matrices' own
    contexts = np.array(record.contexts)
    return nominal_of_model(
        model.config, model.parameters, contexts, weight_itemsize=itemsize, kv_itemsize=kv_itemsize, tokens=record.tokens
    )


def report(
    records: Sequence[ProgramRun], model: Model, kv_itemsize: int, limits: Ceilings, price: Price | None = None
) -> list[ProgramReport]:
    """One `ProgramReport` for each program that ran, in the order of first use.

    Args:
      price: the ledger of a program with its loops run so often, `Program.ledger`; None leaves that witness out.
    """
    by_program: dict[int, list[ProgramRun]] = {}
    for record in records:
        by_program.setdefault(id(record.program), []).append(record)
    return [ProgramReport.of(group, model, kv_itemsize, limits, price) for group in by_program.values()]


def table(reports: Sequence[ProgramReport], title: str) -> Table:
    """For people."""
    view = Table(title=title, caption=_CAPTION)
    for name in ("program", "pages\nwide", "rows\nlive+pad", "steps", "ms/step\nmedian", "ms/step\nP95", "tok/s\n"):
        view.add_column(name, "left" if name == "program" else "right")
    for name in (
        "weights\nMB ¹",
        "KV\nMB ¹",
        "GFLOP\n¹",
        "GFLOP\nXLA ²",
        "MB\nXLA ²",
        "GFLOP\nloops ²",
        "MB\nmoved ²",
        "GB/s\n(of max) ³",
        "GFLOP/s\n(of max) ³",
    ):
        view.add_column(name, "right")
    for r in reports:
        view.add_row(
            r.program,
            str(r.width),
            f"{r.live_rows:.1f}+{r.padded_rows:.1f}",
            str(r.steps),
            f"{r.step_ms:.1f}",
            f"{r.step_ms_p95:.1f}",
            f"{r.tokens_per_second:,.0f}",
            _fixed(r.weight_bytes / 1e6, 0),
            _fixed(r.kv_bytes / 1e6, 1),
            _fixed(r.flops / 1e9, 2),
            _count(r.xla_flops, 1e9, 2, r.xla_loops),
            _count(r.xla_bytes, 1e6, 0, r.xla_loops),
            "-" if r.trip_flops is None else f"{_fixed(r.trip_flops / 1e9, 2)}{_times(r.loop_counts)}",
            "-" if r.traffic_bytes is None else _fixed(r.traffic_bytes / 1e6, 0),
            f"{r.bytes_per_second / 1e9:.1f} ({r.bandwidth_fraction:.0%})",
            f"{r.flops_per_second / 1e9:.0f} ({r.peak_fraction:.0%})",
        )
    return view


_CAPTION = (
    "¹ analytical, nominal: a step reads each weight once and each live row's KV once, and computes 2 FLOP a parameter and token\n"
    "² compiled: XLA's own count for this very program, padding included; + marks loops, whose bodies XLA counts once; then with its\n"
    "  attention loops as often (x) as in the run's middle step by context, and what of the bytes really moves (docs/cost.md)\n"
    "³ nominal bytes and FLOPs over the measured median, and as a share of this machine's measured ceilings"
)


def _count(value: float | None, unit: float, digits: int, loops: int) -> str:
    if value is None:
        return "unknown"
    return _fixed(value / unit, digits) + ("+" if loops else "")


def _fixed(value: float, digits: int) -> str:
    """So many decimals; two significant digits of what would be less than one there, for a tiny model costs something too."""
    return f"{value:.2g}" if 0 < value < 10**-digits else f"{value:,.{digits}f}"


def _times(counts: Mapping[str, float]) -> str:
    """ " x3" where all loops ran so often, " x1-3" where those of some layers ran less."""
    if not counts:
        return ""
    least, most = min(counts.values()), max(counts.values())
    return f" x{most:g}" if least == most else f" x{least:g}-{most:g}"
