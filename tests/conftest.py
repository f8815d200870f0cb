"""Tests run on the CPU where there is no accelerator, whatever compilers for other chips are installed beside JAX.

And hypothesis sets no deadlines: no test depends on how fast the machine is.
"""

from hypothesis import settings
from pytest import TerminalReporter

from costmodel.accelerators import spare_jax_the_search

spare_jax_the_search()
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """What comparisons found, where they passed too: each `record_property("found", ...)`."""
    reports = [each for several in terminalreporter.stats.values() for each in several if getattr(each, "when", "") == "call"]
    lines = [f"{each.nodeid}: {value}" for each in reports for name, value in each.user_properties if name == "found"]
    if lines:
        terminalreporter.section("what comparisons found")
        for line in lines:
            terminalreporter.write_line(line)
