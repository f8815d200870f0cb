"""What ends a command from outside. Oracle: real signals to this process and to children, and a clock that is set by hand."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costmodel.endings import CODES, PATIENCE, SIGNALS, Interrupted, Shield, at_once, heard, why

ROOT = Path(__file__).resolve().parents[2]
NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
each = pytest.mark.parametrize("sent", NAMES, ids=str)


@contextlib.contextmanager
def handled(handler: Any) -> Iterator[None]:
    """All three have this handler, as in a process that was started so."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Whatever the tests themselves were started with."""
    with handled(signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


def test_names_and_codes():
    assert set(SIGNALS) == set(NAMES) and why(KeyboardInterrupt()) == "interrupted by Ctrl-C"
    assert CODES == {"interrupted by Ctrl-C": 130, "interrupted by SIGTERM": 143, "interrupted by SIGHUP": 129}


@each
def test_twice_in_a_hurry_is_once(sent: int):
    """The second of two signals finds the first being dealt with, and does nothing; a third, later, insists."""
    now, kept = 100.0, []
    before = signal.getsignal(sent)
    with heard(lambda: now):
        with pytest.raises(KeyboardInterrupt) as came:
            signal.raise_signal(sent)
        assert why(came.value) == f"interrupted by {NAMES[sent]}"
        now += PATIENCE / 2
        for other in SIGNALS:  # as where a shell and the system send one each
            signal.raise_signal(other)
        kept.append("results")
        now += PATIENCE
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(sent)
    assert kept == ["results"] and signal.getsignal(sent) is before


def test_what_is_ignored_stays_ignored():
    """nohup; and Ctrl-C in a shell's background."""
    with handled(signal.SIG_IGN), heard(), at_once(str, 1), Shield() as shield, shield.up():
        for number in SIGNALS:
            assert signal.getsignal(number) is signal.SIG_IGN
            signal.raise_signal(number)


def test_no_other_thread_touches_signals():
    before, found = signal.getsignal(signal.SIGTERM), []

    def elsewhere() -> None:
        with heard(), at_once(str, 1), Shield() as shield, shield.up():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]


@each
def test_a_shield_holds_it_back(sent: int):
    """Until it is lowered; and one within another until both are."""
    done, woken = [], []
    with heard(), Shield(lambda: woken.append(1)) as shield, Shield(lambda: woken.append(2)) as inner:
        with pytest.raises(Interrupted) as came, shield.up():
            with inner.up():
                signal.raise_signal(sent)
                done.append("a step")
            done.append("its end")
        assert done == ["a step", "its end"] and woken == [2, 1] and came.value.number == sent
    with heard(), Shield(), pytest.raises(Interrupted):  # nothing is held back while it is down
        signal.raise_signal(sent)


def test_the_second_in_a_row_gets_through():
    now, reached = 0.0, []
    with Shield(clock=lambda: now) as shield:
        with pytest.raises(KeyboardInterrupt), shield.up():
            signal.raise_signal(signal.SIGINT)
            now += PATIENCE / 2
            signal.raise_signal(signal.SIGINT)  # the same one, in a hurry
            reached.append(now)
            now += PATIENCE
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("it was held back")
        with shield.up():  # nothing of it is left
            pass
    assert reached and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_somebody_elses_handler_stays():
    """Of a program that uses the library: SIGTERM is its own, and so is a handler that raises nothing of ours."""
    mine = lambda *_: None  # noqa: E731
    signal.signal(signal.SIGINT, mine)
    with Shield() as shield, shield.up():
        assert [signal.getsignal(number) for number in SIGNALS] == [mine, signal.SIG_DFL, signal.SIG_DFL]


def child(body: str, *before: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a process whose command has this body; started by `before`."""
    lines = "\n    ".join(["import os, signal, time", *body.splitlines()])
    program = (
        "import click\nfrom costmodel import endings\nfrom costmodel.terminal import cli\n"
        f"@click.command()\ndef command():\n    {lines}\ncli.run(command)"
    )
    done = subprocess.run([*before, sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60)
    return done.returncode, done.stdout, done.stderr


@each
@pytest.mark.parametrize("within", ["if True:", "with cli.importing():"])
def test_a_command_ends_with_one_line(sent: int, within: str):
    body = f"{within}\n    os.kill(os.getpid(), {int(sent)})\n    time.sleep(50)\nprint('went on')"
    assert child(body) == (2, "", f"error: interrupted by {NAMES[sent]}; nothing was kept\n")


def test_a_command_under_nohup_goes_on():
    body = (
        "os.kill(os.getpid(), signal.SIGHUP)\nwith cli.importing():\n    os.kill(os.getpid(), signal.SIGHUP)\nprint('went on')"
    )
    assert child(body, "sh", "-c", 'trap "" HUP; exec "$@"', "sh") == (0, "went on\n", "")


def test_a_second_signal_ends_at_once_what_the_first_began_to_end():
    body = (
        "endings.PATIENCE = 0\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(50)\nexcept KeyboardInterrupt:\n"
        "    print('keeping', flush=True)\n    os.kill(os.getpid(), signal.SIGHUP)\n    time.sleep(50)\nprint('went on')"
    )
    assert child(body) == (2, "keeping\n", "error: interrupted by SIGHUP; nothing was kept\n")


def test_a_terminal_that_is_closed():
    """The system sends SIGHUP, and what is written goes nowhere: no traceback that nobody could see, and the code is the same."""
    program = "import click, time\nfrom costmodel.terminal import cli\n@click.command()\ndef command():\n    print('on', flush=True)\n"
    program += "    time.sleep(50)\ncli.run(command)"
    number, terminal = pty.fork()
    if not number:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", program])
    assert os.read(terminal, 2) == b"on"
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 2
