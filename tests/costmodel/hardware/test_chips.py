"""The chip table: facts.md section 1, and the figures of data sheets as read from them."""

import pytest

from costmodel.hardware.chips import ALIASES, CHIPS, DEVICES, chip_of_device, find_chip
from models.errors import UserError

T, G, GIB = 1e12, 1e9, 2**30


@pytest.mark.parametrize(
    ("name", "memory", "bandwidth", "peak", "sparse", "ridge"),
    [
        ("a100-sxm-80gb", 80e9, 2.039e12, 312e12, 624e12, 153.0),
        ("h100-sxm", 80e9, 3.35e12, 989e12, 1979e12, 295.2),
        ("h200", 141e9, 4.8e12, 989e12, 1979e12, 206.0),
    ],
)
def test_facts(name, memory, bandwidth, peak, sparse, ridge):
    chip = CHIPS[name]
    assert (chip.memory, chip.bandwidth, chip.peak("bfloat16"), chip.sparse_peaks["bfloat16"]) == (
        memory,
        bandwidth,
        peak,
        sparse,
    )
    assert round(chip.ridge, 1) == ridge


@pytest.mark.parametrize(
    ("name", "memory", "bandwidth", "bits16", "bits8", "link"),  # bits8: int8
    [
        ("a100-pcie-40gb", 40 * G, 1555 * G, 312, 624, 32),
        ("a100-pcie-80gb", 80 * G, 1935 * G, 312, 624, 32),
        ("a100-sxm-40gb", 40 * G, 1555 * G, 312, 624, 300),
        ("a100-sxm-80gb", 80 * G, 2039 * G, 312, 624, 300),
        ("h100-pcie", 80 * G, 2000 * G, 756, 1513, 64),
        ("h100-sxm", 80 * G, 3350 * G, 989, 1979, 450),
        ("h100-nvl", 94 * G, 3900 * G, 835.5, 1670.5, 64),
        ("h200", 141 * G, 4800 * G, 989, 1979, 450),
        ("b200", 180 * G, 7700 * G, 2250, 4500, 900),
        ("l4", 24 * G, 300 * G, 121, 242.5, 32),
        ("l40s", 48 * G, 864 * G, 362.05, 733, 32),
        ("rtx-4090", 24 * G, 1008 * G, 165.2, 660.6, 32),
        ("rtx-pro-6000", 96 * G, 1792 * G, 503.8, 1007.6, 64),
        ("mi300x", 192 * G, 5300 * G, 1307.4, 2614.9, 448),
        ("tpu-v4", 32 * GIB, 1200 * G, 275, 275, 270),
        ("tpu-v5e", 16 * GIB, 819 * G, 197, 394, 200),
        ("tpu-v5p", 95 * GIB, 2765 * G, 459, 918, 600),
        ("tpu-v6e", 32 * GIB, 1640 * G, 918, 1836, 400),
    ],
)
def test_data_sheets(name, memory, bandwidth, bits16, bits8, link):
    chip = CHIPS[name]
    assert (chip.memory, chip.link_bandwidth) == (memory, link * G)
    assert chip.bandwidth == bandwidth
    assert (chip.peak("bf16"), chip.peak("int8")) == (bits16 * T, bits8 * T)


def test_tpu_v7x():
    chip = find_chip("v7x")
    assert (chip.peak("bfloat16"), chip.peak("float8"), chip.memory) == (2307e12, 4614e12, 192 * GIB)
    assert chip.bandwidth == 7.37e12


def test_every_chip_is_whole_and_dense():
    for name, chip in CHIPS.items():
        assert chip.name == name and chip.source and chip.link_bandwidth and chip.on_chip and chip.on_chip < 2**30
        assert 90 < chip.ridge < 650, (name, chip.ridge)
        for dtype, sparse in chip.sparse_peaks.items():
            printed = (name, dtype) in (("l40s", "bfloat16"), ("l40s", "float16"))  # both are: 362.05 and 733
            assert printed or chip.peaks[dtype] == pytest.approx(sparse / 2, rel=2e-3), (name, dtype)
        assert set(chip.sparse_peaks) <= set(chip.peaks)
    assert CHIPS["h100-sxm"].peak("float8") == CHIPS["h100-sxm"].sparse_peaks["bfloat16"] == 1979e12
    assert CHIPS["tpu-v5e"].on_chip == CHIPS["tpu-v6e"].on_chip == 128 * 2**20


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("h100-sxm", "h100-sxm"),
        ("H100 SXM", "h100-sxm"),
        ("H100_SXM ", "h100-sxm"),
        ("h100", "h100-sxm"),
        ("a100", "a100-sxm-80gb"),
        ("V5E", "tpu-v5e"),
        ("v6e", "tpu-v6e"),
        ("tpu7x", "tpu-v7x"),
        ("4090", "rtx-4090"),
    ],
)
def test_find(spelling, name):
    assert find_chip(spelling) is CHIPS[name]


def test_aliases_lead_to_chips_and_hide_none():
    assert set(ALIASES.values()) <= set(CHIPS) and not set(ALIASES) & set(CHIPS)


@pytest.mark.parametrize(
    ("name", "near"), [("h1000", "h100-sxm"), ("a100-sxm-80", "a100-sxm-80gb"), ("H20", "h200"), ("v6", "tpu-v6e")]
)
def test_unknown_chip_suggests_the_nearest(name, near):
    with pytest.raises(UserError, match=rf"unknown chip '{name}'; did you mean .*{near}.*known chips are"):
        find_chip(name)


def test_unknown_chip_without_a_near_one_lists_all():
    with pytest.raises(UserError, match=r"unknown chip 'zzzz'; known chips are a100-pcie-40gb, .*h200.*tpu-v7x"):
        find_chip("zzzz")


def test_the_host_is_measured():
    with pytest.raises(
        UserError, match=r"chip host: it is measured, not listed; costmodel.hardware.ceilings.ceilings\(\).chip\(\)"
    ):
        find_chip("host")


def test_devices_by_the_name_that_jax_gives_them():
    """Only exact names: an H100 PCIe has 2.0 TB/s, not the 3.35 of the SXM module."""
    assert chip_of_device("NVIDIA H200") is CHIPS["h200"]
    assert chip_of_device("NVIDIA H100 PCIe") is CHIPS["h100-pcie"]
    assert chip_of_device("TPU v5 lite") is CHIPS["tpu-v5e"]
    assert all(chip_of_device(kind) is CHIPS[name] for kind, name in DEVICES.items())
    for other in ("NVIDIA H100 80GB HBM2e", "cpu", "", "TPU7x"):  # a TPU7x device is half a chip
        assert chip_of_device(other) is None
