"""The forms of kernel times. Oracles: hand arithmetic, naive counting loops, NumPy against JAX and plain floats."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.calibration.decode_attention import DecodeAttention
from costmodel.calibration.device import Device
from costmodel.calibration.engine_step import EngineStep
from costmodel.calibration.form import Form, Scalars
from costmodel.calibration.forms import FORMS
from costmodel.calibration.gemm import Gemm
from costmodel.calibration.prefill_attention import TILE, PrefillAttention, pieces
from costmodel.hardware.chips import CHIPS
from models.errors import UserError

RATES = ("bandwidth", "peak", "cache rate")
CHIP = Device("made up", 1e12, 132e12, 132, 50e6)  # 1 TFLOP/s a core
GEMM = {"launch": 2e-6, "bandwidth": 0.5, "peak": 1.0, "core rate": 1e15, "wave": 0.0, "merge": 1.0}
DECODE = {"launch": 5e-6, "bandwidth": 0.5, "cache gain": 7.0, "cache share": 0.5, "task": 1e-6, "exposed": 0.25, "merge": 1e-6}
PREFILL = {"launch": 5e-6, "bandwidth": 0.5, "peak": 0.5, "token": 1e-9}
POINTS: dict[str, dict[str, Any]] = {
    "gemm": {"m": 17.0, "n": 4096.0, "k": 2048.0},
    "decode attention": {"batch": 8.0, "heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0, "context": 777.0, "cold": 0.0},
    "prefill attention": {"heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0, **pieces([(0, 300), (64, 20)])},
    "engine step": dict.fromkeys(
        ("programs", "weights", "packed", "flops", "moved", "samples", "cache", "attention", "turns"), 3e6
    ),
}


def test_a_matmul_that_reads():
    """One row over 8192 x 8192 weights: 134.25 MB at half of 1 TB/s."""
    found = Gemm().seconds(GEMM, {"m": 1, "n": 8192, "k": 8192}, CHIP, np)
    assert found == pytest.approx(2e-6 + 2 * (8192 * 8192 + 2 * 8192) / 0.5e12, rel=1e-12)


def test_a_tile_more_than_cores_is_a_wave_more():
    """132 tiles of 128 x 256 are one wave; for a row more 9 tiles of 16 rows are best, which multiply 144."""
    tile = 2 * 128 * 256 * 8192 / 1e12
    wide = {**GEMM, "bandwidth": 1e6}  # nothing to wait for in memory
    one, more = Gemm().seconds(wide, {"m": [128.0, 129.0], "n": 132 * 256, "k": 8192}, CHIP, np)
    assert one == pytest.approx(2e-6 + tile, rel=1e-12)
    assert more == pytest.approx(2e-6 + tile * 144 / 128, rel=1e-12)


def test_a_core_loads_its_own_tile():
    """64 outputs, 16 rows: one tile of 16 x 64 and no other core helps, for adding up takes a second here."""
    slow = {**GEMM, "core rate": 1e9, "bandwidth": 1e6}
    found = Gemm().seconds(slow, {"m": 16, "n": 64, "k": 640}, CHIP, np)
    assert found == pytest.approx(2e-6 + 2 * (16 + 64) * 640 / 1e9, rel=1e-12)
    split = Gemm().seconds(
        {**slow, "merge": 0.0}, {"m": 16, "n": 64, "k": 640}, CHIP, np
    )  # 10 steps of k over 16 cores: 1 each
    assert split == pytest.approx(2e-6 + 2 * (16 + 64) * 64 / 1e9, rel=1e-12)


def test_attention_of_rows_that_decode():
    """Cold: 1 GB of KV at half of 1 TB/s, and a quarter of what 256 tasks take 132 cores."""
    large = {"batch": 32, "heads": 8, "kv_heads": 8, "head_dim": 128, "context": 8192, "cold": 1.0}
    read = 2 * 2 * 32 * 128 * 8 * (8192 + 1)
    expected = 5e-6 + read / 0.5e12 + 0.25 * 256 / 132 * 1e-6
    assert DecodeAttention().seconds(DECODE, large, CHIP, np) == pytest.approx(expected, rel=1e-12)


def test_a_warm_cache_is_read_eight_times_as_fast():
    """4.1 MB, a sixth of the 25 MB that stay: but for 7 in 10,000. One row's 8 tasks are split into 8 parts of 1,000 tokens."""
    small = {"batch": 1, "heads": 8, "kv_heads": 8, "head_dim": 128, "context": 1000}
    read, work = 2 * 2 * 128 * 8 * 1001, 8 / 132 * 1e-6
    for cold, rate in ((0.0, 4e12), (1.0, 0.5e12)):
        found = DecodeAttention().seconds(DECODE, {**small, "cold": cold}, CHIP, np)
        assert found == pytest.approx(5e-6 + read / rate + 0.25 * work + 3 * 1e-6, rel=1e-3)


def test_attention_of_a_prompt():
    """128 tokens, 1 head of 64: tiles of 64 queries over 64 and 128 keys."""
    of = {"heads": 1, "kv_heads": 1, "head_dim": 64, **pieces([(0, 128)])}
    compute, moved = 4 * 64 * (64 * 64 + 64 * 128) / 66e12, 2 * 2 * 64 * 256 / 0.5e12
    assert PrefillAttention().seconds(PREFILL, of, CHIP, np) == pytest.approx(5e-6 + compute + moved + 128e-9, rel=1e-12)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 700), st.integers(1, 700)), min_size=1, max_size=4))
def test_pairs_and_tiles_are_counted(of: list[tuple[int, int]]):
    pairs = tiled = 0
    for start, count in of:
        pairs += sum(start + i + 1 for i in range(count))
        for first in range(0, count, TILE):
            last = start + min(first + TILE, count)
            tiled += sum(TILE * TILE for keys in range(0, last, TILE) if keys < last)
    found = pieces(of)
    assert (found["pairs"], found["tiled"]) == (pairs, tiled)
    assert found["tokens"] == sum(count for _, count in of) and found["read"] == sum(start + count for start, count in of)
    assert found["tiled"] >= found["pairs"]


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_jax_numpy_and_floats_agree(form: Form):
    values = {spec.name: spec.start for spec in form.specs}
    expected = form.seconds(values, POINTS[form.name], CHIP, np)
    with jax.enable_x64(True):
        assert float(form.seconds(values, POINTS[form.name], CHIP, jnp)) == pytest.approx(float(expected), rel=1e-9)
    if form.name != "gemm":
        assert form.seconds(values, POINTS[form.name], CHIP, Scalars) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_no_time_is_below_the_roofline_of_its_own_figures(form: Form):
    """With every fraction 1 and nothing else to pay."""
    perfect = {spec.name: {"": 1.0, "s": 0.0, "B/s": 1e30}[spec.unit] for spec in form.specs}
    bare = form.roofline(POINTS[form.name], CHIP)
    assert float(form.seconds(perfect, {**POINTS[form.name], "cold": 1.0}, CHIP, np)) >= float(bare) * (1 - 1e-12)


def test_devices():
    found = Device.of(CHIPS["rtx-4090"])
    assert found == Device("rtx-4090", 1008e9, 165.2e12, 128, 72 * 2**20)
    with pytest.raises(UserError, match="mi300x: the number of its SMs is not known"):
        Device.of(CHIPS["mi300x"])
    assert Device.of(CHIPS["mi300x"], units=304).units == 304


def test_where_a_fit_of_engine_steps_begins():
    """Times are made from known costs: they are found again, and the rates; a cost that no time depends on is left to the form."""
    draw = np.random.default_rng(0)
    names = ("weights", "packed", "flops", "moved", "samples", "cache", "attention", "turns")
    scales = (5e8, 5e8, 4e9, 1e7, 30.0, 5e8, 1e8, 300.0)
    features = {name: scale * draw.uniform(0, 2, 200) for name, scale in zip(names, scales, strict=True)}
    features["programs"] = np.ones(200)
    made = {"program": 5e-3, "turn": 50e-6, "sample": 0.3e-3, "bandwidth": 0.7, "packing": 0.4, "peak": 0.5, "cache rate": 0.3}
    device = Device("host", 20e9, 150e9, 2, 32e6)
    found = EngineStep().start(features, EngineStep().seconds(made, features, device, np), device)
    times = EngineStep().seconds(made, features, device, np)
    assert EngineStep().seconds(found, features, device, np) == pytest.approx(times, rel=0.03)
    assert [found[name] for name in RATES] == pytest.approx([made[name] for name in RATES], rel=0.1)
    features["packed"] = np.zeros(200)
    assert "packing" not in EngineStep().start(features, EngineStep().seconds(made, features, device, np), device)
