"""A chip as a value: what it refuses, and that JAX can carry it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.hardware.chip import Chip, measured_chip, peak_name, stack
from costmodel.hardware.chips import CHIPS
from models.errors import UserError

H100, V5E, V4 = CHIPS["h100-sxm"], CHIPS["tpu-v5e"], CHIPS["tpu-v4"]


def test_dense_peak_is_used_and_the_sparse_one_would_mislead():
    assert H100.peak(2) == 989e12
    assert round(H100.sparse_peaks["bfloat16"] / H100.bandwidth) == 591  # the wrong ridge that facts.md warns of
    without = dataclasses.replace(H100, sparse_peaks={})
    assert without.ridge == H100.ridge and round(H100.ridge) == 295


def test_peaks_by_dtype_and_by_width():
    assert [H100.peak(dtype) for dtype in ("bf16", "float16", "fp8", "float8_e4m3fn", "int8", "tf32", "float32")] == [
        989e12, 989e12, 1979e12, 1979e12, 1979e12, 494.5e12, 67e12,
    ]  # fmt: skip
    assert (H100.peak(4), H100.peak(2), H100.peak(1), V5E.peak(1)) == (67e12, 989e12, 1979e12, 394e12)
    assert peak_name("Float8_e5m2") == "float8"


def test_no_figure_is_an_error_and_not_a_guess():
    with pytest.raises(UserError, match="tpu-v5e: no dense peak for operands of 4 bytes; use a width of 1 or 2 bytes"):
        V5E.peak(4)
    with pytest.raises(UserError, match="tpu-v4: no dense peak for float8; it has bfloat16, int8"):
        V4.peak("float8")


def test_measured_host():
    chip = measured_chip("host", memory=24_000_000_000, bandwidth=32e9, peak_16bit=377e9, peak_32bit=205e9)
    assert (chip.source, chip.peak(4), chip.peak(2), round(chip.ridge, 2)) == ("measured", 205e9, 377e9, 11.78)
    with pytest.raises(UserError, match="measured chip host: bandwidth is 0"):
        measured_chip("host", memory=1, bandwidth=0, peak_16bit=1, peak_32bit=1)


def test_a_pytree_of_its_figures():
    doubled = jax.tree.map(lambda x: 2 * x, H100)
    assert (doubled.name, doubled.source) == (H100.name, H100.source)
    assert (doubled.bandwidth, doubled.peak(2), doubled.link_bandwidth) == (6.7e12, 1978e12, 900e9)
    assert float(jax.jit(lambda chip: chip.ridge)(H100)) == pytest.approx(H100.ridge)
    slope = jax.grad(lambda b: dataclasses.replace(H100, bandwidth=b).ridge)(3.35e12)
    assert float(slope) == pytest.approx(-989e12 / 3.35e12**2)
    assert hash(H100) == hash(dataclasses.replace(H100))


def test_stack():
    chips = stack([H100, V5E])
    assert chips.name == "h100-sxm, tpu-v5e" and set(chips.peaks) == {"bfloat16", "int8"} and chips.sparse_peaks == {}
    np.testing.assert_array_equal(chips.bandwidth, [3.35e12, 0.819e12])
    np.testing.assert_allclose(chips.ridge, [H100.ridge, V5E.ridge])
    np.testing.assert_allclose(jax.vmap(lambda chip: chip.ridge)(jax.tree.map(jnp.asarray, chips)), chips.ridge, rtol=1e-6)
    alone = stack([Chip("odd", 1.0, 2.0, {"bfloat16": 4.0}, "made up"), H100])
    assert alone.link_bandwidth is None and list(alone.peaks) == ["bfloat16"]
    with pytest.raises(UserError, match="there are 0 chips"):
        stack([])
