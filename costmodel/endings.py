"""What ends a command from outside: Ctrl-C (SIGINT), SIGTERM, and SIGHUP of a terminal that is closed. All end it alike. No JAX."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
PATIENCE = 2.0  # s after a signal in which another one is the same: pressed twice in a hurry, or sent by a shell and a runner

Clock = Callable[[], float]


class Interrupted(KeyboardInterrupt):
    """number: of the signal that came."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def why(error: BaseException) -> str:
    """What a KeyboardInterrupt came of, for people; a plain one is Python's own for Ctrl-C."""
    return f"interrupted by {named(error.number if isinstance(error, Interrupted) else signal.SIGINT)}"


def named(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


CODES = {
    why(Interrupted(number)): 128 + number for number in SIGNALS
}  # exit codes of results that are kept, as shells count them


class _Ending:
    """A handler that raises `Interrupted`, but for signals that come within `PATIENCE` of the last that did."""

    def __init__(self, clock: Clock):
        self._clock, self._last = clock, -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if (now := self._clock()) - self._last >= PATIENCE:
            self._last = now
            raise Interrupted(number)

    def lost(self, unraisable: sys.UnraisableHookArgs) -> None:
        """It was raised where nothing can be: within a callback of the garbage collector, of which JAX has one, Python would only print a
        traceback, and the command would go on. So it is sent once more."""
        self._last = -math.inf
        error = unraisable.exc_value
        number = error.number if isinstance(error, Interrupted) else signal.SIGINT
        again = threading.Timer(0.05, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()


@contextlib.contextmanager
def heard(clock: Clock = time.monotonic) -> Iterator[None]:
    """Within it each of `SIGNALS` raises a KeyboardInterrupt that knows its name. One that is ignored, as under nohup, stays so.

    Those that follow within `PATIENCE` are dropped: else a second one, while the first is being dealt with, would cost all that was kept.
    A later one is raised again. Elsewhere than in the main thread, which signals never reach, it does nothing.
    """
    ending, before = _Ending(clock), sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        (ending.lost if issubclass(unraisable.exc_type, KeyboardInterrupt) else before)(unraisable)

    with _handling(ending, lambda handler: True):
        sys.unraisablehook = hook
        try:
            yield
        finally:
            sys.unraisablehook = before


@contextlib.contextmanager
def at_once(message: Callable[[str], str], code: int) -> Iterator[None]:
    """Within it each of `SIGNALS` ends the process then and there. message: what is said on standard error, made of why."""

    def leave(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # a terminal that was closed takes nothing
            os.write(2, message(why(Interrupted(number))).encode())
        os._exit(code)

    with _handling(leave, lambda handler: True):
        yield


class Shield:
    """Holds signals that would raise a KeyboardInterrupt back while it is up, so that what runs stays whole.

    One that comes `PATIENCE` later while it still is up gets through. Within the context it is ready to be put up, which is cheap; handlers
    of other people are left alone. Only in the main thread, where signals arrive.

    Args:
      wake: called when a signal is held back, for what waits and should wait no longer.
    """

    def __init__(self, wake: Callable[[], Any] = lambda: None, clock: Clock = time.monotonic):
        self._wake, self._clock = wake, clock
        self._up, self._held, self._since = False, 0, 0.0
        self._under: dict[int, Any] = {}  # handlers that were there before
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> Shield:
        self._under = self._entered.enter_context(_handling(self._heard, _raises))
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """KeyboardInterrupt is raised at the end of it, if a signal came meanwhile."""
        self._up = True
        try:
            yield
        finally:
            self._up = False
            held, self._held = self._held, 0
        if held:
            self._under[held](held, None)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        now = self._clock()
        if self._up and not self._held:
            self._held, self._since = number, now
            self._wake()
        elif not self._up or now - self._since >= PATIENCE:
            self._under[number](number, frame)


def _raises(handler: Any) -> bool:
    """Whether a handler raises a KeyboardInterrupt: Python's own, or one of those here."""
    return handler is signal.default_int_handler or isinstance(getattr(handler, "__self__", handler), (_Ending, Shield))


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], wanted: Callable[[Any], bool]) -> Iterator[dict[int, Any]]:
    """Within it the handler takes those of `SIGNALS` that aren't ignored and whose own handler is wanted: by number, what they had."""
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                found = signal.getsignal(number)
                if found not in (signal.SIG_IGN, None) and wanted(
                    found
                ):  # None: not set by Python, which could not set it back
                    before[number] = found
                    signal.signal(number, handler)
        yield before
    finally:
        for number, found in before.items():
            signal.signal(number, found)
