"""How far compiling is: which programs are waited for, and for how long still, judged by those that are ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from costmodel.hardware.host import cores
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.program_set import Program, in_turn


class Bar(Protocol):
    """Shows progress: (what, total, a note that is asked for at each picture) -> call with each advance."""

    def __call__(self, what: str, total: int, note: Callable[[], str] = ..., /) -> Callable[[int], None]: ...


class Compiling:
    """A bar of programs. Called with each that is ready, as `compile_programs` does.

    Args:
      bar: where it is shown.
      buckets: what is compiled.
      what: before the bar.
      threads: that compile.
      clock: s.
    """

    def __init__(
        self,
        bar: Bar,
        buckets: Iterable[Bucket],
        what: str = "compiling programs",
        *,
        threads: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        order = in_turn(buckets)
        self._clock, self._threads = clock, threads or cores()
        # As the threads take them: in order, the next one when one is ready.
        self._now, self._queue = dict.fromkeys(order[: self._threads], clock()), order[self._threads :]
        self._compiled, self._loaded = list[float](), list[float]()
        self._advance = bar(what, len(order), self.note)

    def __call__(self, program: Program) -> None:
        (self._loaded if program.kept else self._compiled).append(program.seconds)
        self._now.pop(program.bucket, None)
        if self._queue:
            self._now[self._queue.pop(0)] = self._clock()
        self._advance(1)

    @property
    def left(self) -> float | None:
        """s until all are ready, if each takes what those that were compiled took on average; None while none is ready.

        Those that are under way have run for some of it; the others are shared out among the threads.
        """
        known = self._compiled or self._loaded  # where nothing was compiled yet, perhaps nothing will be
        if not known:
            return None
        mean, now = sum(known) / len(known), self._clock()
        under_way = [max(mean - (now - start), 0.0) for start in list(self._now.values())]
        return max((sum(under_way) + mean * len(self._queue)) / self._threads, *under_way, 0.0)

    def note(self) -> str:
        """Such as: about 35 s left; now prefill 4x64, decode 64."""
        left, names = self.left, ", ".join(bucket.name for bucket in list(self._now))
        if not names:
            return ""
        if left is None:
            return f"now {names}"
        return f"{f'about {left:.0f} s left' if left >= 1 else 'nearly ready'}; now {names}"
