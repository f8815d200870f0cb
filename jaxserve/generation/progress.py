"""How far a run of requests is: a bar of answers, with tokens and tokens a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from rich import progress
from rich.console import Console

from jaxserve.engine.request_handle import Piece

WINDOW = 5.0  # s that a rate is taken over


class Rate:
    """Tokens a second over the last few seconds (clock)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self.tokens = clock, 0
        self._seen = deque([(clock(), 0)])

    def add(self, tokens: int) -> None:
        """So many more have come."""
        now = self._clock()
        self.tokens += tokens
        self._seen.append((now, self.tokens))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        (start, before), (end, after) = self._seen[0], self._seen[-1]
        return (after - before) / (end - start) if end > start else 0.0


class Progress:
    """A bar on standard error; nothing where it is no terminal.

    Args:
      total: answers.
      shown: whether to show it at all.
      console: for another place than standard error.
    """

    def __init__(self, total: int, *, shown: bool = True, console: Console | None = None):
        console = console or Console(stderr=True)
        columns = (
            progress.TextColumn("generating"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("answers, {task.fields[tokens]} tokens, {task.fields[rate]:,.0f} tokens/s"),
            progress.TimeElapsedColumn(),
        )
        # Switched off, and not only transient: rich ends with an empty line where there is no terminal.
        self._bar = progress.Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal))
        self._task = self._bar.add_task("", total=total, tokens=0, rate=0.0)
        self._rate, self._ended = Rate(), 0

    def __enter__(self) -> Progress:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def add(self, pieces: Iterable[Piece]) -> None:
        """What a step brought."""
        pieces = list(pieces)
        self._rate.add(sum(len(piece.tokens) for piece in pieces))
        self._ended += sum(piece.handle.answers[piece.sample].finish is not None for piece in pieces)
        self._bar.update(self._task, completed=self._ended, tokens=self._rate.tokens, rate=self._rate.per_second)
