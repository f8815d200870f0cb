"""Tests run on the CPU where there is no accelerator, whatever compilers for other chips are installed beside JAX.

What commands compile by default and measure goes to a cache folder of this run, which its processes share, and never to the user's own.
What tests compile in their own process goes to JAX's cache within it, so that equal programs of several files are compiled once a run.

Hypothesis sets no deadlines: no test depends on how fast the machine is. And Ctrl-C is heard, for some tests send it: where a shell starts
them in the background (`make test &`) it tells its children to ignore it.
"""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pytest import TerminalReporter

from costmodel.hardware.host import spare_jax_the_search
from tests.whole_tables import every_one_that_is_printed

spare_jax_the_search()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

IN_CHARGE = "PYTEST_XDIST_WORKER" not in os.environ  # and not one of its workers, who inherit the folder
if IN_CHARGE:
    known = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxserve" / "ceilings.json"
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="jaxserve-tests-")
    with contextlib.suppress(OSError):  # what was measured of this machine holds here too
        own = Path(os.environ["XDG_CACHE_HOME"], "jaxserve")
        own.mkdir()
        shutil.copy(known, own)


def share_compiled_programs(shared: bool) -> None:
    """What this process compiles is kept in JAX's own cache, and taken from there; or not. No child process inherits that."""
    import jax  # only now that it is known where to look for accelerators
    from jax.experimental.compilation_cache import compilation_cache

    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_compilation_cache_dir", os.path.join(os.environ["XDG_CACHE_HOME"], "jax") if shared else None)
    compilation_cache.reset_cache()


share_compiled_programs(True)


@pytest.fixture
def without_jax_cache() -> Iterator[None]:
    """For tests of programs that jaxserve keeps itself: a program from JAX's cache can't be written down again (jax 0.10.2)."""
    share_compiled_programs(False)
    yield
    share_compiled_programs(True)


@pytest.fixture(scope="session", autouse=True)
def whole_tables() -> Iterator[None]:
    """Whatever table a command prints in a test loses no digit where the screen is narrow."""
    with every_one_that_is_printed():
        yield


def pytest_unconfigure(config: pytest.Config) -> None:
    if IN_CHARGE:
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """What comparisons found, where they passed too: each `record_property("found", ...)`."""
    reports = [each for several in terminalreporter.stats.values() for each in several if getattr(each, "when", "") == "call"]
    lines = [f"{each.nodeid}: {value}" for each in reports for name, value in each.user_properties if name == "found"]
    if lines:
        terminalreporter.section("what comparisons found")
        for line in lines:
            terminalreporter.write_line(line)
