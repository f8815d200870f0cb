"""Ctrl-C while results are being kept: pressed twice in a hurry, or sent twice by a shell and a runner, it is one."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

PATIENCE = 2.0  # s after a Ctrl-C in which another one is the same; who presses again later insists


@contextlib.contextmanager
def once(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Within it, one Ctrl-C is one KeyboardInterrupt: those that follow it within `PATIENCE` are dropped.

    Without it a second one, while the first is being dealt with, would cost all that was measured. Elsewhere than in the main thread,
    which signals never reach, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -math.inf

    def struck(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if (now := clock()) - last >= PATIENCE:
            last = now
            raise KeyboardInterrupt

    old = signal.signal(signal.SIGINT, struck)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
