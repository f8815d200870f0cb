"""What a load keeps in memory is estimated before it begins. Oracle: Python's own count of what a run really takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from jaxserve.load import spec as asked
from jaxserve.load.spec import REQUESTS, LoadSpec, kept_bytes
from jaxserve.simulate import main
from models.errors import UserError


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak(requests: int, output: int) -> int:
    """B at the peak of a simulated run, over what there was before."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    options = ("--rate", "50/s", "--requests", str(requests), "--prompt", "16", "--output", str(output), "--json")
    assert CliRunner().invoke(main, options).exit_code == 0
    return tracemalloc.get_traced_memory()[1] - before


@pytest.mark.slow
def test_the_estimate_lies_above_what_is_taken_and_not_far(traced: None):
    """Differences of two runs: what does not grow with the load is the process's own."""
    few = peak(100, 2)  # the first one imports
    few = peak(100, 2)
    for requests, output in ((500, 2), (200, 100)):
        taken = peak(requests, output) - few
        estimate = kept_bytes(requests, requests * output) - kept_bytes(100, 200)
        assert estimate / 3 < taken < estimate, (requests, output)


def test_more_than_there_is_memory_for_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asked, "free_memory_bytes", lambda: kept_bytes(1000, 64_000))
    LoadSpec(rates=(1.0,), requests=1000)
    with pytest.raises(UserError, match=r"--requests 1001 with 64064 tokens to follow needs about 0\.0 GB .* ask for fewer"):
        LoadSpec(rates=(1.0,), requests=1001)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"requests": REQUESTS + 1}, r"--requests is 10000001; it must be at most 10000000 \(what is measured"),
        ({"requests": 10**30}, r"--requests is 10{30}; it must be at most 10000000"),
        ({"rates": None, "clients": (8, 10**30)}, r"--clients is 10{30}; it must be at most"),
        ({"prompt": "1-99999999999"}, r"--prompt is 99999999999; it must be at most 10000000 \(tokens"),
        ({"output": "9" * 5000}, r"--output is '9+\.\.\.9+'; it must be at most"),
        ({"arrivals": "gamma", "burstiness": 1e300}, r"the burstiness is 1e\+300; it must lie from 1e-06 to 1e\+06"),
        ({"arrivals": "gamma", "burstiness": 1e-300}, "the burstiness is 1e-300; it must lie from"),
    ],
)
def test_numbers_that_no_load_has(given: dict, says: str):
    with pytest.raises(UserError, match=says):
        LoadSpec(**{"rates": (1.0,), **given})
