"""Clocks: seconds of repeated work, their summary, and whether the machine was busy with something else meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

from models.errors import UserError

Timer = Callable[[], float]


def nearest_rank(percent: float, count: int) -> int:
    """Which of `count` sorted values, from 1, is the percentile by nearest rank: the first that at least `percent` % do not exceed.

    Whole numbers alone, of the percentile as it is written: 16.1 % of 1,000 are 161 values, where 16.1 * 1000 / 100 of floats is above.

    Raises:
      UserError: percent isn't above 0 and at most 100.
    """
    if not 0 < percent <= 100:
        raise UserError(f"percentile {percent} is out of range; it must be above 0 and at most 100")
    return math.ceil(Fraction(str(percent)) * count / 100)


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds of each repetition, in the order in which they ran; at least one, for a summary of nothing would be a lie."""

    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.seconds:
            raise UserError("timings: nothing was timed; run at least 1 repetition")

    @property
    def count(self) -> int:
        return len(self.seconds)

    @property
    def total(self) -> float:
        return math.fsum(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The middle value, or the mean of the two middle ones."""
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        return self.percentile(95)

    @property
    def spread(self) -> float:
        """(P95 - P5) / median: 0 for a steady clock, above about 0.3 for a machine that does other things too."""
        return (self.percentile(95) - self.percentile(5)) / self.median

    def percentile(self, percent: float) -> float:
        """The nearest-rank percentile: the smallest recorded value that at least `percent` % of the values do not exceed.

        It is always a value that happened; with fewer than 20 values, P95 is the largest.
        """
        return sorted(self.seconds)[nearest_rank(percent, self.count) - 1]


class Clock:
    """Records how long each lap takes: ``with clock.lap(): ...``. A lap that raises is not recorded.

    The work must end inside the lap: on an asynchronous device, wait for its result there (`jax.block_until_ready`).
    """

    def __init__(self, timer: Timer = time.perf_counter) -> None:
        self._timer = timer
        self._seconds: list[float] = []

    @contextlib.contextmanager
    def lap(self) -> Iterator[None]:
        start = self._timer()
        yield
        self._seconds.append(self._timer() - start)

    @property
    def timings(self) -> Timings:
        """The laps so far. Raises `UserError` when there are none."""
        return Timings(tuple(self._seconds))


class RunQueue:
    """How long this process's threads waited for a core while a block ran: ``with RunQueue() as queue: ...``.

    `contention` is the waiting time over the running time of all threads (Linux, /proc/<pid>/task/*/schedstat): 0 on a quiet
    machine, 1 when every thread got half of what it asked for. It is None before the block ends and where there is no
    schedstat. Time stolen by another virtual machine does not show here.
    """

    contention: float | None = None

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._tasks = process / "task"

    def __enter__(self) -> RunQueue:
        self._before = self._read()
        return self

    def __exit__(self, *error: object) -> None:
        ran = waited = 0
        for task, (run, wait) in self._read().items():
            run_before, wait_before = self._before.get(task, (0, 0))
            ran, waited = ran + run - run_before, waited + wait - wait_before
        self.contention = waited / ran if ran > 0 else None

    def _read(self) -> dict[str, tuple[int, int]]:
        """Nanoseconds (on a core, waiting for one) of each live thread. A thread may end while we read."""
        times = {}
        for path in self._tasks.glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError):
                run, wait, _ = path.read_text().split()
                times[path.parent.name] = (int(run), int(wait))
        return times
