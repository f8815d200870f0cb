"""An hour of a real trace, simulated in flat memory; how long it took is printed. Oracle: the trace's length, the kernel's books."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jaxserve.kv.paged import Paged
from jaxserve.load.trace import read_trace, requests
from jaxserve.predict.analytical import Analytical
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.state import State
from jaxserve.simulator.run import simulate

TRACE = Path(__file__).parents[4] / "shared" / "traces" / "azure_2023_conv.csv"


def held() -> int:
    """B of memory that this process has, by the kernel's books."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not TRACE.exists(), reason="needs ../shared/traces, which are handed over beside this repository")
def test_an_hour_of_azure():
    """19,366 requests of real lengths, Llama-3-8B on an H100, analytical step times, and no more memory at the end."""
    predictor, policy = Analytical("llama-3-8b", "h100"), Chunked(Limits(rows=128), 1024)
    before, start = held(), time.process_time()
    found = simulate(policy, State.of(Paged.of(26_000, 16)), requests(read_trace(TRACE)), predictor)
    took, more = time.process_time() - start, held() - before
    served, simulated = sum(found.ends.values()), found.seconds
    print(f"{served:,} requests, {found.steps:,} steps, {simulated:,.0f} s simulated in {took:.1f} s; {more / 1e6:.1f} MB more")
    assert found.ends == {"length": 19_366} and 3500 < found.seconds < 3700
    assert more < 30e6
