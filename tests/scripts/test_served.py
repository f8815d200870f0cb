"""Figures of a run. Oracle: worked out by hand on runs that were made up."""

from __future__ import annotations

from typing import Any

import pytest

from jaxserve.programs.bucket import Bucket
from jaxserve.scheduling.step_record import StepRecord
from models.errors import UserError
from scripts.served import Alike, Served, alike, kind_of, overhead, padded_share, profile, pure, rows_of
from scripts.workload import Item, Workload

LOAD = Workload((Item((0,) * 10, 3), Item((0,) * 5, 1)))


def record(**changes: Any) -> StepRecord:
    """Four rows decode."""
    blank: dict[str, Any] = dict.fromkeys(StepRecord._fields, 0) | {"programs": ("decode 4",), "rows": 4, "decode": 4}
    return StepRecord(**{**blank, **changes})


PROMPT = record(programs=("prefill 4x32",), rows=2, decode=0, prefill=50, padded=2, measured=0.5, host=0.1)
MIXED = record(programs=("decode 4 + prefill 1x32",), rows=4, decode=3, prefill=20, padded=1, measured=0.2, host=0.01)


def test_rates_and_gaps():
    """4 tokens of answers and 15 of prompts in 2 s; gaps of 0.5 and 0.7 s within the first answer, none in the second."""
    served = Served(2.0, [[1, 2, 3], [4]], [[0.5, 1.0, 1.7], [2.0]])
    assert served.useful == 2.0 and served.total(LOAD) == 9.5
    assert served.gaps.seconds == pytest.approx((0.5, 0.7))
    with pytest.raises(UserError):
        _ = Served(1.0, [[1]], [[0.5]]).gaps


def test_overhead_is_of_full_pure_decodes():
    """Of ten pure steps of 1 ms host in 20 ms, of which one took 5 in 24: (9 + 5) / (9 * 20 + 24) of the time."""
    pures = [record(host=0.001, measured=0.019)] * 9 + [record(host=0.005, measured=0.019)]
    others = [PROMPT, MIXED, record(rows=3, decode=3), record(draft=2), record(decode=8)]  # the last repeats its step
    assert pure([*others, *pures], 4) == pures
    found = overhead([*others, *pures], 4)
    assert (found.steps, found.median, found.p99) == (10, 0.001, 0.005)
    assert found.step == pytest.approx(0.02) and found.share == pytest.approx(14 / 204)
    assert found.to_json()["step_ms"] == pytest.approx(20)
    with pytest.raises(UserError):
        overhead(others, 4)


def test_profile_sums_to_the_run():
    """1.0 s: 0.5 prefill, 0.2 mixed, 0.1 in two decodes, 0.13 host, and what is left is the caller's."""
    two = record(programs=("decode 4", "prefill 4x32"), prefill=9, measured=0.05, host=0.0)
    records = (PROMPT, MIXED, record(measured=0.04, host=0.01), record(measured=0.06, host=0.01), two)
    found = profile(Served(1.0, [], [], records))
    assert list(found)[:4] == ["prefill", "decode + prefill", "decode", "decode & prefill"]
    assert {kind: part.steps for kind, part in found.items() if part.steps} == {
        "prefill": 1,
        "decode + prefill": 1,
        "decode": 2,
        "decode & prefill": 1,
    }
    assert found["decode"].seconds == pytest.approx(0.1) and found["decode"].tokens == 8
    assert found["decode + prefill"].tokens == 23
    assert found["host, between steps"].seconds == pytest.approx(0.13) and found["rest"].seconds == pytest.approx(0.02)
    assert sum(part.share for part in found.values()) == pytest.approx(1)


def test_padded_rows():
    """2 of the 4 rows of the prefill, 1 of the 5 of the mixed step, none of a full decode's 4."""
    assert padded_share([PROMPT, MIXED, record()]) == pytest.approx(3 / 13) and padded_share([]) == 0


@pytest.mark.parametrize(
    ("bucket", "kind", "rows"),
    [
        (Bucket(((64, 1),), 4), "decode", 64),
        (Bucket(((4, 128),), 4), "prefill", 4),
        (Bucket(((64, 1), (4, 128)), 4), "decode + prefill", 68),
        (Bucket(((8, 5),), 4, verify=True), "verify", 8),
        (Bucket(((8, 5), (2, 32)), 4, verify=True), "verify + prefill", 10),
        (Bucket(((16, 1),), 4, steps=8), "decode", 16),
    ],
)
def test_what_names_of_programs_say(bucket: Bucket, kind: str, rows: int):
    assert kind_of(bucket.name) == kind and rows_of(bucket.name) == rows


def test_alike():
    """The second differs at its token 1 of 3, the third is cut: 4 + 1 + 1 of 4 + 3 + 2 tokens came before a difference."""
    ours, theirs = [[1, 2, 3, 4], [1, 2, 3], [5, 6]], [[1, 2, 3, 4], [1, 9, 3], [5]]
    assert alike(ours, theirs) == Alike(3, 1, 6 / 9, (1, 1))
    assert alike(ours, ours) == Alike(3, 3, 1.0, None)
    with pytest.raises(ValueError):
        alike(ours, ours[:2])
