"""10,000 short requests that come and go at random: nothing is left of them, nothing compiles, and memory stays flat.

Oracles: counts by hand, JAX's own compile events, and the process's own memory in the second half of the run against the first.
"""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxserve.engine.request_handle import RequestHandle
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.transfer import Link
from jaxserve.speculative.ngram import NGram
from tests.jaxserve.engines import ALL_KIT, PLAIN_KIT, Kit, engine, nothing_left, numbered, run
from tests.jaxserve.programs.test_program_set import compile_events
from tests.jaxserve.proofs import proved

REQUESTS = 10_000
LINK = Link(token_bytes=100, bandwidth=1e6, latency=0.002)


def resident() -> int:
    """B of this process that are in memory."""
    gc.collect()
    status = Path("/proc/self/statm")
    if not status.exists():
        pytest.skip("the memory of a process is read from /proc")
    return int(status.read_text().split()[1]) * 4096


def record(step: int) -> StepRecord:
    """The last records are kept, by design. Where as many as there will be are there from the beginning, they don't count as growth; so
    each has strings and numbers of its own, as those have that replace it."""
    programs, time = (f"decode {step}",), float(step)
    return StepRecord(step, 0, f"{step:032x}", programs, 4, 0, 0, 4, 0, 4, 9, None, time + 0.1, time + 0.2, time + 0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "kit", "more"),
    [
        (Continuous(Limits(rows=4, ahead=1)), PLAIN_KIT, {"prefix": True, "lent": 13}),
        (Chunked(Limits(rows=4), 9, 2), ALL_KIT, {"drafter": NGram(2)}),
        (Disaggregated(LINK, Limits(rows=4)), PLAIN_KIT, {"workers": 2}),
    ],
    ids=["continuous", "chunked", "disaggregated"],
)
def test_ten_thousand_requests_leave_nothing_behind(policy: Any, kit: Kit, more: dict[str, Any]):
    one, draw = engine(policy, kit, books=Observer(), **more), np.random.default_rng(0)
    one.records.extend(map(record, range(one.records.maxlen or 0)))
    alive: list[weakref.ref[RequestHandle]] = []
    handles: list[RequestHandle] = []
    some: list[RequestHandle] = []
    used, ends = [resident()], {"length": 0, "stop": 0, "abort": 0}
    with compile_events() as events:
        for number in range(REQUESTS):
            params = SamplingParams(
                float(draw.choice([0.0, 1.0])),
                seed=number % 7,
                max_tokens=int(draw.integers(1, 6)),
                n=int(draw.choice([1, 1, 1, 2])),
            )
            handles.append(one.submit(numbered(int(draw.integers(5)), int(draw.integers(1, 12))), params))
            alive.append(weakref.ref(handles[-1]))
            if draw.random() < 0.1:
                one.abort(handles[int(draw.integers(len(handles)))])
            while one.status().waiting > 4:
                one.step()
                one.wait()
            for handle in [handle for handle in handles if handle.finished]:
                handles.remove(handle)
                reason = handle.answers[-1].finish.reason  # type: ignore[union-attr]
                ends[reason] += 1
                if number % 50 == 0:
                    some.append(handle)
            if number % (REQUESTS // 4) == REQUESTS // 4 - 1:
                used.append(resident())
        run(one)
        for handle in handles:
            ends[handle.answers[-1].finish.reason] += 1  # type: ignore[union-attr]
    assert not events
    nothing_left(one)
    for handle in some:
        proved(handle)
    del handle
    handles.clear()
    some.clear()
    gc.collect()
    assert sum(ref() is not None for ref in alive) == 0, "handles of requests that have ended are kept"
    assert sum(ends.values()) == REQUESTS and min(ends.values()) > 100, ends
    first, second = used[2] - used[0], used[4] - used[2]
    # Allocators keep what the first half made them take. A kilobyte a request would be 5 MB.
    assert second <= max(first, 0) / 2 + 1_000_000, [f"{(b - used[0]) / 1e6:.2f} MB" for b in used]
