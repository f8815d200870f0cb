"""Seconds of a step and of its stages, on a chip of round numbers. Oracle: worked out by hand."""

import dataclasses

import pytest

from costmodel.hardware.chip import Chip
from costmodel.parallel.layouts import Layout, Mesh
from costmodel.parallel.sharded import Exchange, ShardedStep, Stage
from costmodel.parallel.shares import Memory
from models.errors import UserError

CHIP = Chip("round", 100.0, 10.0, {"bfloat16": 1000.0, "int8": 2000.0}, "made up", link_bandwidth=4.0)  # B, B/s, FLOP/s, B/s
MOVE = Exchange("all-gather", "hidden", "x", 4, 16.0, 2)  # 16 * 3/4 * 2 = 24 B, 6 s on all links
COMPUTE = Stage("down", flops=7000.0, weight_bytes=20.0, kv_bytes=10.0, activation_bytes=10.0, exchanges=(MOVE,))  # 7, 4, 6 s
READ = Stage("attention", flops=1000.0, kv_bytes=30.0)  # 1, 3, 0 s
STEP = ShardedStep(Layout(Mesh(4, 2, 2), "ws-2d", "heads"), 1, (COMPUTE, READ), Memory(40.0, 30.0, 20.0, 10.0))


def test_exchange():
    assert MOVE.link_bytes == 24.0
    assert dataclasses.replace(MOVE, kind="all-to-all").link_bytes == 24.0
    assert dataclasses.replace(MOVE, kind="all-reduce").link_bytes == 48.0  # a reduce-scatter and an all-gather


def test_totals():
    assert (STEP.flops, STEP.bytes, STEP.link_bytes) == (8000.0, 70.0, 24.0)
    assert STEP.exchanges == (MOVE,)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"overlap": "full"}, 7 + 3),  # the gather hides behind the matmul, the cache is read after it
        ({"overlap": "none"}, 7 + 6 + 3),
        ({"overlap": "none", "links": "own"}, 7 + 18 + 3),  # one axis of three
        ({"overlap": "full", "links": "own"}, 18 + 3),
        ({"overlap": "full", "dtype": "int8"}, 6 + 3),  # 3.5 s to multiply, 4 s to read, 6 s to gather
        ({"overlap": "none", "dtype": "int8"}, 4 + 6 + 3),
    ],
)
def test_seconds(options, seconds):
    assert STEP.seconds(CHIP, **options) == pytest.approx(seconds)


def test_fits_when_all_four_kinds_do():
    assert STEP.memory.total == 100.0
    assert STEP.fits(CHIP) and not STEP.fits(dataclasses.replace(CHIP, memory=99.0))


def test_a_chip_without_links():
    lonely = dataclasses.replace(CHIP, link_bandwidth=None)
    with pytest.raises(UserError, match="chip round: no link bandwidth is known"):
        STEP.seconds(lonely, overlap="none")
    alone = ShardedStep(Layout(Mesh(), "ws-1d", "heads"), 1, (READ,), STEP.memory)
    assert alone.seconds(lonely, overlap="none") == 3.0  # nothing to send, so nothing to know


def test_a_dtype_without_a_peak():
    with pytest.raises(UserError, match="chip round: no dense peak for float8"):
        STEP.seconds(CHIP, overlap="none", dtype="float8")
