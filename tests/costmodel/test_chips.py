"""facts.md section 1."""

import pytest

from costmodel.chips import CHIPS, DEVICES, chip_of_device, find_chip, measured_chip
from models.errors import UserError


@pytest.mark.parametrize(
    ("name", "memory", "bandwidth", "peak", "sparse", "ridge"),
    [
        ("a100-sxm-80gb", 80e9, 2.039e12, 312e12, 624e12, 153.0),
        ("h100-sxm", 80e9, 3.35e12, 989e12, 1979e12, 295.2),
        ("h200", 141e9, 4.8e12, 989e12, 1979e12, 206.0),
    ],
)
def test_table(name, memory, bandwidth, peak, sparse, ridge):
    chip = CHIPS[name]
    assert (chip.memory, chip.bandwidth, chip.peak_16bit, chip.sparse_peak_16bit) == (memory, bandwidth, peak, sparse)
    assert round(chip.ridge, 1) == ridge


def test_dense_peak_is_used_and_the_sparse_one_would_mislead():
    chip = find_chip("h100-sxm")
    assert chip.peak(2) == 989e12
    assert (
        chip.sparse_peak_16bit and round(chip.sparse_peak_16bit / chip.bandwidth) == 591
    )  # the wrong ridge that facts.md warns of


@pytest.mark.parametrize("spelling", ["h100-sxm", "H100 SXM", "H100_SXM "])
def test_find(spelling):
    assert find_chip(spelling) is CHIPS["h100-sxm"]


@pytest.mark.parametrize(("name", "near"), [("h100", "h100-sxm"), ("a100-80gb", "a100-sxm-80gb"), ("H20", "h200")])
def test_unknown_chip_suggests_the_nearest(name, near):
    with pytest.raises(UserError, match=rf"unknown chip '{name}'; did you mean .*{near}.*known chips are"):
        find_chip(name)


def test_unknown_chip_without_a_near_one_lists_all():
    with pytest.raises(UserError, match="unknown chip 'zzzz'; known chips are a100-sxm-80gb, h100-sxm, h200"):
        find_chip("zzzz")


def test_no_figure_is_an_error_and_not_a_guess():
    with pytest.raises(UserError, match="h100-sxm: no dense peak for operands of 4 bytes; use a width of 2 bytes"):
        CHIPS["h100-sxm"].peak(4)


def test_measured_host():
    chip = measured_chip("host", memory=24_000_000_000, bandwidth=32e9, peak_16bit=377e9, peak_32bit=205e9)
    assert (chip.source, chip.peak(4), chip.peak(2), round(chip.ridge, 2)) == ("measured", 205e9, 377e9, 11.78)
    with pytest.raises(UserError, match="measured chip host: bandwidth is 0"):
        measured_chip("host", memory=1, bandwidth=0, peak_16bit=1, peak_32bit=1)


def test_devices_by_the_name_that_jax_gives_them():
    """Only exact names: an H100 PCIe has 2.0 TB/s, not the 3.35 of the SXM module."""
    assert chip_of_device("NVIDIA H200") is CHIPS["h200"]
    assert all(chip_of_device(kind) is CHIPS[name] for kind, name in DEVICES.items())
    for other in ("NVIDIA H100 PCIe", "NVIDIA A100-SXM4-40GB", "cpu", ""):
        assert chip_of_device(other) is None
