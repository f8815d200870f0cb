"""Ctrl-C. Oracle: real signals to this process, and a clock that is set by hand."""

from __future__ import annotations

import signal
import threading

import pytest

from jaxserve.load.interrupt import PATIENCE, once


def test_twice_in_a_hurry_is_once():
    """The second of two signals finds the first being dealt with, and does nothing; a third, later, insists."""
    now = 100.0
    before = signal.getsignal(signal.SIGINT)
    with once(lambda: now):
        kept = []
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        now += PATIENCE / 2
        signal.raise_signal(signal.SIGINT)
        kept.append("results")
        now += PATIENCE
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert kept == ["results"] and signal.getsignal(signal.SIGINT) is before


def test_no_other_thread_touches_signals():
    before, found = signal.getsignal(signal.SIGINT), []

    def elsewhere() -> None:
        with once():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]
