"""The chips that a step can be priced on: published figures, each line with its source.

Dense and sparse peaks are kept apart, see `costmodel.hardware.chip`. Where a data sheet prints only the sparse figure, the
dense one is half of it, except the 16-bit peak of an H100 or H200, which is rounded there and 989 in NVIDIA's own white paper.
Link bandwidth is one direction, half of what vendors print. Cards that NVLink bridges join in pairs only are priced over PCIe,
which reaches all others.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from costmodel.hardware.chip import Chip, Quantity, measured_chip, stack
from models.errors import UserError

__all__ = ["ALIASES", "CHIPS", "DEVICES", "Chip", "Quantity", "chip_of_device", "find_chip", "measured_chip", "stack"]

_MIB, _GIB = 2**20, 2**30


def _peaks(bits16: float, **others: float) -> dict[str, float]:
    """TFLOP/s -> FLOP/s by dtype; bf16 and f16 run at one rate on every chip here."""
    return {name: value * 1e12 for name, value in {"bfloat16": bits16, "float16": bits16, **others}.items()}


def _chip(
    name: str, gb: float, gb_s: float, dense: dict[str, float], sparse: dict[str, float], link: float, on_chip: int, source: str
) -> Chip:
    return Chip(name, gb * 1e9, gb_s * 1e9, dense, source, sparse, link * 1e9, float(on_chip))


def _tpu(name: str, gib: int, gb_s: float, peaks: dict[str, float], link: float, vmem: int, source: str) -> Chip:
    """TPUs have no sparse peaks and their matrix units take no f16. Data can stay in VMEM (v4 has 128 MiB of CMEM beside it)."""
    dense = {dtype: peak for dtype, peak in peaks.items() if dtype != "float16"}
    return Chip(name, float(gib * _GIB), gb_s * 1e9, dense, source, {}, link * 1e9, float(vmem * _MIB))


_AMPERE = _peaks(312, float32=19.5, tf32=156, int8=624, int4=1248), _peaks(624, tf32=312, int8=1248, int4=2496)
_HOPPER = _peaks(989, float32=67, tf32=494.5, float8=1979, int8=1979), _peaks(1979, tf32=989, float8=3958, int8=3958)
_HOPPER_PCIE = _peaks(756, float32=51, tf32=378, float8=1513, int8=1513), _peaks(1513, tf32=756, float8=3026, int8=3026)
_HOPPER_NVL = _peaks(835.5, float32=60, tf32=417.5, float8=1670.5, int8=1670.5), _peaks(1671, tf32=835, float8=3341, int8=3341)
_BLACKWELL = (
    _peaks(2250, float32=75, tf32=1100, float8=4500, int8=4500, float4=9000),
    _peaks(4500, tf32=2200, float8=9000, int8=9000, float4=18000),
)
_L4 = _peaks(121, float32=30.3, tf32=60, float8=242.5, int8=242.5), _peaks(242, tf32=120, float8=485, int8=485)
_L40S = (
    _peaks(362.05, float32=91.6, tf32=183, float8=733, int8=733, int4=733),
    _peaks(733, tf32=366, float8=1466, int8=1466, int4=1466),
)
_RTX4090 = (  # tensor cores that accumulate in f32, as matmuls here do
    _peaks(165.2, float32=82.6, tf32=82.6, float8=330.3, int8=660.6, int4=1321.2),
    _peaks(330.3, tf32=165.2, float8=660.6, int8=1321.2, int4=2642.4),
)
_RTXPRO6000 = (  # a professional card multiplies at full rate into f32
    _peaks(503.8, float32=125.9, tf32=251.9, float8=1007.6, int8=1007.6, float4=2015.2),
    _peaks(1007.6, tf32=503.8, float8=2015.2, int8=2015.2, float4=4030.5),
)
_MI300X = (
    _peaks(1307.4, float32=163.4, tf32=653.7, float8=2614.9, int8=2614.9),
    _peaks(2614.9, tf32=1307.4, float8=5229.8, int8=5229.8),
)

# fmt: off
_TABLE = (  # GB, GB/s, dense and sparse peaks, GB/s of links in one direction, B of the last cache
    _chip("a100-pcie-40gb", 40, 1555, *_AMPERE, 32, 40 * _MIB, "NVIDIA A100 data sheet, 40 GB PCIe; links: PCIe 4 x16"),
    _chip("a100-pcie-80gb", 80, 1935, *_AMPERE, 32, 40 * _MIB, "NVIDIA A100 80 GB PCIe data sheet; links: PCIe 4 x16"),
    _chip("a100-sxm-40gb", 40, 1555, *_AMPERE, 300, 40 * _MIB, "NVIDIA A100 data sheet, 40 GB SXM; links: NVLink 3"),
    _chip("a100-sxm-80gb", 80, 2039, *_AMPERE, 300, 40 * _MIB, "NVIDIA A100 80 GB SXM data sheet; links: NVLink 3"),
    _chip("h100-pcie", 80, 2000, *_HOPPER_PCIE, 64, 50 * _MIB, "NVIDIA H100 PCIe data sheet; links: PCIe 5 x16"),
    _chip("h100-sxm", 80, 3350, *_HOPPER, 450, 50 * _MIB, "NVIDIA H100 SXM data sheet; links: NVLink 4"),
    _chip("h100-nvl", 94, 3900, *_HOPPER_NVL, 64, 50 * _MIB, "NVIDIA H100 NVL data sheet; links: PCIe 5 x16"),
    _chip("h200", 141, 4800, *_HOPPER, 450, 50 * _MIB, "NVIDIA H200 SXM data sheet; links: NVLink 4"),
    _chip("b200", 180, 7700, *_BLACKWELL, 900, 126 * _MIB, "NVIDIA HGX B200 data sheet; links: NVLink 5"),
    _chip("l4", 24, 300, *_L4, 32, 48 * _MIB, "NVIDIA L4 data sheet; links: PCIe 4 x16"),
    _chip("l40s", 48, 864, *_L40S, 32, 96 * _MIB, "NVIDIA L40S data sheet; links: PCIe 4 x16"),
    _chip("rtx-4090", 24, 1008, *_RTX4090, 32, 72 * _MIB, "NVIDIA Ada white paper, GeForce RTX 4090; links: PCIe 4 x16"),
    _chip("rtx-pro-6000", 96, 1792, *_RTXPRO6000, 64, 128 * _MIB, "NVIDIA RTX Blackwell PRO white paper, Workstation; links: PCIe 5 x16"),
    _chip("mi300x", 192, 5300, *_MI300X, 448, 256 * _MIB, "AMD Instinct MI300X data sheet; links: 7 Infinity Fabric"),
    _tpu("tpu-v4", 32, 1200, _peaks(275, int8=275), 270, 32, "Google Cloud TPU v4; links: Pope et al. 2022, section 4"),
    _tpu("tpu-v5e", 16, 819, _peaks(197, int8=394), 200, 128, "Google Cloud TPU v5e; links: 400 GB/s both ways"),
    _tpu("tpu-v5p", 95, 2765, _peaks(459, int8=918), 600, 128, "Google Cloud TPU v5p; links: 1200 GB/s both ways"),
    _tpu("tpu-v6e", 32, 1640, _peaks(918, int8=1836), 400, 128, "Google Cloud TPU v6e; links: 800 GB/s both ways"),
    _tpu("tpu-v7x", 192, 7370, _peaks(2307, float8=4614), 600, 128, "Google Cloud TPU7x; links: 1200 GB/s both ways"),
)
# fmt: on
CHIPS: Mapping[str, Chip] = {chip.name: chip for chip in _TABLE}

# Short names that people use. Where a family has several members it is the one that serves: SXM, and the larger memory.
ALIASES: Mapping[str, str] = {
    "a100": "a100-sxm-80gb",
    "a100-40gb": "a100-sxm-40gb",
    "a100-80gb": "a100-sxm-80gb",
    "h100": "h100-sxm",
    "h200-sxm": "h200",
    "4090": "rtx-4090",
    "rtx4090": "rtx-4090",
    "rtxpro6000": "rtx-pro-6000",
    "tpu7x": "tpu-v7x",
    "v5litepod": "tpu-v5e",
    **{name.removeprefix("tpu-"): name for name in CHIPS if name.startswith("tpu-")},
}

# What JAX calls a device (`Device.device_kind`) whose data sheet is held. On a TPU7x a device is half a chip, so it is left out.
DEVICES: Mapping[str, str] = {
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H200": "h200",
    "NVIDIA B200": "b200",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000",
    "TPU v4": "tpu-v4",
    "TPU v5 lite": "tpu-v5e",
    "TPU v5e": "tpu-v5e",
    "TPU v5": "tpu-v5p",
    "TPU v5p": "tpu-v5p",
    "TPU v6 lite": "tpu-v6e",
    "TPU v6e": "tpu-v6e",
}


def chip_of_device(kind: str) -> Chip | None:
    """The chip of a JAX device kind, or None: a share of a roof that is another chip's would be worse than none."""
    return CHIPS[DEVICES[kind]] if kind in DEVICES else None


def find_chip(name: str) -> Chip:
    """The chip called `name` or one of its `ALIASES`, in any case and with spaces or underscores for hyphens.

    Raises:
      UserError: no such chip; the message suggests the nearest names.
    """
    key = name.strip().lower().replace(" ", "-").replace("_", "-")
    key = ALIASES.get(key, key)
    if key in CHIPS:
        return CHIPS[key]
    if key == "host":
        raise UserError("chip host: it is measured, not listed; costmodel.hardware.ceilings.ceilings().chip() gives it")
    near = list(dict.fromkeys(ALIASES.get(n, n) for n in difflib.get_close_matches(key, [*CHIPS, *ALIASES], n=3, cutoff=0.5)))[
        :2
    ]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f"unknown chip {name!r}; {hint}known chips are {', '.join(CHIPS)}")
