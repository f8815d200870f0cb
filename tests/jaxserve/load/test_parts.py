"""The parts of TTFT. Oracle: the whole, in binary fractions, so that sums are exact."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.load.parts import STAGES, shares, split
from jaxserve.load.recorder import RequestRecord
from tests.jaxserve.load.records import record

FIELDS = ("sent", "submitted", "ready", "started", "prefilled")
gaps = st.lists(st.integers(0, 2**20).map(lambda n: n / 2**16), min_size=6, max_size=6)


def made(start: float, waits: list[float], hidden: frozenset[str] = frozenset()) -> RequestRecord:
    times = [start]
    for wait in waits:
        times.append(times[-1] + wait)
    known: dict[str, Any] = {
        field: math.nan if field in hidden else time for field, time in zip(FIELDS, times[1:], strict=False)
    }
    return record(intended=start, tokens=(times[-1],), **known)


@given(st.integers(0, 2**20).map(float), gaps)
def test_parts_are_the_waits_and_sum_to_the_whole_exactly(start: float, waits: list[float]):
    one = made(start, waits)
    assert [part.name for part in split(one)] == list(STAGES)
    assert [part.seconds for part in split(one)] == waits
    assert sum(part.seconds for part in split(one)) == one.ttft


@given(gaps, st.frozensets(st.sampled_from(FIELDS)))
def test_what_nobody_knows_runs_together_and_still_sums(waits: list[float], hidden: frozenset[str]):
    one = made(1.0, waits, hidden)
    parts = split(one)
    assert sum(part.seconds for part in parts) == one.ttft
    assert " + ".join(part.name for part in parts) == " + ".join(STAGES) and len(parts) == 6 - len(hidden)


@given(st.floats(0, 1e9), st.lists(st.floats(0, 1e6), min_size=6, max_size=6))
def test_any_times(start: float, waits: list[float]):
    one = made(start, waits)
    assert math.fsum(part.seconds for part in split(one)) == pytest.approx(one.ttft, rel=1e-9, abs=1e-6)


def test_no_token_no_parts():
    assert split(record()) == ()


def test_shares():
    """Two requests: 1 s of 4 in the queue, and 3 of 4; one that failed counts for nothing."""
    records = [made(0.0, [0, 0, 0, 1, 3, 0]), made(0.0, [0, 0, 0, 3, 1, 0]), record(tokens=(9.0,), reason="failed")]
    found = {share.name: (share.seconds.mean, share.share) for share in shares(records)}
    assert found["queue"] == found["prefill"] == (2.0, 0.5) and found["emission"] == (0.0, 0.0)
    assert sum(mean for mean, _ in found.values()) == 4.0
    assert [share.name for share in shares([record(tokens=(1.0,))])] == [
        "client delay", "preprocessing + aggregation + queue + prefill + emission"
    ]  # fmt: skip
