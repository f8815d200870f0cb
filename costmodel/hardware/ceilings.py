"""What a run takes here, what this machine can do at most, and which dtype decodes fastest on it: measured, never assumed.

The last two are measured once and kept in a cache, with date, processor and versions. Both are races between named runs, interleaved
so that a disturbance falls on all of them. What ran on a busy machine is reported with its contention and not kept.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax

from costmodel.hardware import probes as kernels
from costmodel.hardware.chips import Chip, measured_chip
from costmodel.hardware.clock import Clock, RunQueue, Timer, Timings
from costmodel.hardware.host import Store, host_key, memory_bytes, today
from models.errors import UserError

QUIET = 0.2  # contention up to which a measurement is kept; two cores shared with one busy process show about 1
MARGIN = 1.05  # how much faster a later dtype must be than the first to be preferred

T = TypeVar("T", bound="Ceilings | DtypeChoice")


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """The best rates that simple kernels reached here: read bandwidth in B/s, matmuls in FLOP/s, and which kernel it was."""

    host: str
    date: str
    contention: float | None
    read_bandwidth: float
    read_by: str
    matmul_f32: float
    matmul_f32_by: str
    matmul_bf16: float
    matmul_bf16_by: str

    def chip(self) -> Chip:
        """This machine as a chip with its physical memory; `source` is "measured"."""
        return measured_chip(
            self.host,
            memory=memory_bytes(),
            bandwidth=self.read_bandwidth,
            peak_16bit=self.matmul_bf16,
            peak_32bit=self.matmul_f32,
        )


@dataclasses.dataclass(frozen=True)
class DtypeChoice:
    """Best seconds of a pass over a decode-shaped stack, `seconds[dtype][i]` at `rows[i]` rows, the preferred dtype first."""

    host: str
    date: str
    contention: float | None
    rows: list[int]
    seconds: dict[str, list[float]]

    @property
    def winner(self) -> str:
        """The dtype that is fastest by the geometric mean over rows; the first one unless another gains `MARGIN`."""
        first = next(iter(self.seconds))
        best = max(self.seconds, key=lambda name: self._speedup(name, first))
        return best if self._speedup(best, first) >= MARGIN else first

    @property
    def reason(self) -> str:
        """One line for the user: the winner, by how much, at which rows."""
        winner = self.winner
        parts = []
        for other in self.seconds:
            if other != winner:
                each = ", ".join(
                    f"{b / a:.2f} at {n}" for n, a, b in zip(self.rows, self.seconds[winner], self.seconds[other], strict=True)
                )
                parts.append(f"{self._speedup(winner, other):.2f} times the speed of {other} (rows: {each})")
        busy = f"; measured on a busy machine, contention {self.contention:.2f}" if (self.contention or 0) > QUIET else ""
        return f"{winner}: {' and '.join(parts) or 'the only dtype tried'}, measured {self.date}{busy}"

    def _speedup(self, name: str, over: str) -> float:
        ratios = [b / a for a, b in zip(self.seconds[name], self.seconds[over], strict=True)]
        return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


@dataclasses.dataclass(frozen=True)
class Measured:
    """Seconds of many runs of one thing, where and when, and how long its threads waited for a core (`clock.RunQueue`)."""

    timings: Timings
    host: str
    date: str
    contention: float | None

    @property
    def seconds(self) -> float:
        """The median."""
        return self.timings.median

    @property
    def busy(self) -> bool:
        """Whether the machine was under load, so that the seconds say more about it than about the run."""
        return (self.contention or 0) > QUIET

    @property
    def note(self) -> str:
        """One line: how many runs, how they spread, and a warning where the machine was under load."""
        low, high = (self.timings.percentile(percent) * 1e3 for percent in (5, 95))
        line = f"median of {self.timings.count} runs, P5 {low:.2f} to P95 {high:.2f} ms, {self.date}, {self.host}"
        return f"{line}; the machine was under load (contention {self.contention:.2f}): measure again" if self.busy else line


def measure(run: kernels.Run, *, repeats: int = 20, warmup: int = 2, timer: Timer = time.perf_counter) -> Measured:
    """Time a run over and over, each time until its result is there on the device.

    Args:
      repeats: runs that count. warmup: runs before them that don't, at least 1, for the first may compile.

    Raises:
      UserError: fewer than 1 of either.
    """
    if min(repeats, warmup) < 1:
        raise UserError(f"measure: repeats is {repeats} and warmup {warmup}; both must be at least 1")
    for _ in range(warmup):
        jax.block_until_ready(run())
    clock = Clock(timer)
    with RunQueue() as queue:
        for _ in range(repeats):
            with clock.lap():
                jax.block_until_ready(run())
    return Measured(clock.timings, host_key(), today(), queue.contention)


def race(runs: Mapping[str, kernels.Run], *, rounds: int = 5, timer: Timer = time.perf_counter) -> dict[str, Timings]:
    """Time each run once a round, after one untimed call of each (compilation). Results are waited for inside the lap."""
    if rounds < 1:
        raise UserError(f"race: rounds is {rounds}; it must be at least 1")
    clocks = {name: Clock(timer) for name in runs}
    for run in runs.values():
        jax.block_until_ready(run())
    for _ in range(rounds):
        for name, run in runs.items():
            with clocks[name].lap():
                jax.block_until_ready(run())
    return {name: clock.timings for name, clock in clocks.items()}


def measure_ceilings(
    read: Mapping[str, kernels.Probe] | None = None,
    f32: Mapping[str, kernels.Probe] | None = None,
    bf16: Mapping[str, kernels.Probe] | None = None,
    *,
    rounds: int = 5,
    timer: Timer = time.perf_counter,
) -> Ceilings:
    """Race the probes of each kind and keep the best rate of each. Takes about 3 s on two cores with the default probes."""
    kinds = (read or kernels.read_probes(), f32 or kernels.matmul_probes("float32"), bf16 or kernels.matmul_probes("bfloat16"))
    rates = []
    with RunQueue() as queue:
        for probes in kinds:
            timings = race({name: probe.run for name, probe in probes.items()}, rounds=rounds, timer=timer)
            rates.append(max((probe.amount / timings[name].best, name) for name, probe in probes.items()))
    (bandwidth, read_by), (peak_f32, f32_by), (peak_bf16, bf16_by) = rates
    return Ceilings(host_key(), today(), queue.contention, bandwidth, read_by, peak_f32, f32_by, peak_bf16, bf16_by)


def measure_dtypes(
    stacks: Mapping[str, kernels.Stack] | None = None,
    rows: Sequence[int] = (1, 2, 8, 64),
    *,
    rounds: int = 5,
    timer: Timer = time.perf_counter,
) -> DtypeChoice:
    """Race the stacks at each number of rows. Takes about 5 s on two cores with the default stacks.

    Args:
      stacks: dtype name -> function from rows to a run; the default is `kernels.decode_stacks`. The order is one of preference.
      rows: batch sizes that matter to the caller.
    """
    if not rows or min(rows) < 1:
        raise UserError(f"measure_dtypes: rows are {list(rows)}; give at least one, each at least 1")
    stacks = stacks or kernels.decode_stacks()
    seconds: dict[str, list[float]] = {name: [] for name in stacks}
    with RunQueue() as queue:
        for count in rows:
            for name, timings in race({k: stack(count) for k, stack in stacks.items()}, rounds=rounds, timer=timer).items():
                seconds[name].append(timings.best)
    return DtypeChoice(host_key(), today(), queue.contention, list(rows), seconds)


def ceilings(*, store: Store | None = None, measure: Callable[[], Ceilings] = measure_ceilings) -> Ceilings:
    """This machine's ceilings, from the cache or measured now."""
    return _remembered("ceilings", Ceilings, store or Store(), measure)


def default_dtype(
    rows: Sequence[int] = (1, 2, 8, 64),
    *,
    store: Store | None = None,
    measure: Callable[[Sequence[int]], DtypeChoice] = lambda rows: measure_dtypes(rows=rows),
) -> DtypeChoice:
    """Which dtype decodes fastest at these rows on this machine (`.winner`, `.reason`), from the cache or measured now."""
    name = "dtype at rows " + ",".join(map(str, rows))
    return _remembered(name, DtypeChoice, store or Store(), lambda: measure(rows))


def _remembered(name: str, kind: type[T], store: Store, measure: Callable[[], T]) -> T:
    host = host_key()
    entry: Mapping[str, Any] | None = store.get(host, name)
    if entry is not None and set(entry) == {field.name for field in dataclasses.fields(kind)}:
        return kind(**entry)
    value = measure()
    if value.contention is None or value.contention <= QUIET:
        store.put(host, name, dataclasses.asdict(value))
    return value
