"""The chips that a step can be priced on.

Peaks are dense. A vendor's larger figure with 2:4 structured sparsity is kept in a field of its own and no formula reads it:
decode multiplies dense weights, and with 1979 instead of 989 TFLOP/s the ridge of an H100 would read 591 FLOP/B.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping

from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip, or the measured host. GB = 1e9 bytes, as data sheets and facts.md count.

    `peak_16bit` is the dense rate of matmuls whose operands are bf16 or f16, `peak_32bit` of those in true f32; None where no
    figure is held. `sparse_peak_16bit` is for display only.
    """

    name: str
    memory: int  # B
    bandwidth: float  # B/s
    peak_16bit: float  # FLOP/s
    source: str
    peak_32bit: float | None = None  # FLOP/s
    sparse_peak_16bit: float | None = None  # FLOP/s

    @property
    def ridge(self) -> float:
        """FLOP/B above which dense 16-bit work is bound by compute (the roofline's corner, Williams et al. 2009)."""
        return self.peak_16bit / self.bandwidth

    def peak(self, itemsize: int) -> float:
        """Dense matmul FLOP/s for operands of `itemsize` bytes.

        Raises:
          UserError: the table holds no figure for that width; guessing one would put a wrong roof on a plot.
        """
        peak = {2: self.peak_16bit, 4: self.peak_32bit}.get(itemsize)
        if peak is None:
            widths = "2 or 4" if self.peak_32bit else "2"
            raise UserError(f"chip {self.name}: no dense peak for operands of {itemsize} bytes; use a width of {widths} bytes")
        return peak


CHIPS: Mapping[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip(
            name="a100-sxm-80gb",
            memory=80_000_000_000,
            bandwidth=2.039e12,
            peak_16bit=312e12,
            sparse_peak_16bit=624e12,
            source="NVIDIA A100 80 GB SXM data sheet, dense BF16",
        ),
        Chip(
            name="h100-sxm",
            memory=80_000_000_000,
            bandwidth=3.35e12,
            peak_16bit=989e12,
            sparse_peak_16bit=1979e12,
            source="NVIDIA H100 SXM data sheet, dense BF16",
        ),
        Chip(
            name="h200",
            memory=141_000_000_000,
            bandwidth=4.8e12,
            peak_16bit=989e12,
            sparse_peak_16bit=1979e12,
            source="NVIDIA H200 SXM data sheet, dense BF16",
        ),
    )
}


# What JAX calls a device (`Device.device_kind`) whose data sheet is held. Variants with other memory (PCIe, 40 GB) are left out.
DEVICES: Mapping[str, str] = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H200": "h200",
}


def chip_of_device(kind: str) -> Chip | None:
    """The chip of a JAX device kind, or None: a share of a roof that is another chip's would be worse than none."""
    return CHIPS[DEVICES[kind]] if kind in DEVICES else None


def find_chip(name: str) -> Chip:
    """The chip called `name`, in any case and with spaces or underscores for hyphens.

    Raises:
      UserError: no such chip; the message suggests the nearest names.
    """
    key = name.strip().lower().replace(" ", "-").replace("_", "-")
    if key in CHIPS:
        return CHIPS[key]
    near = difflib.get_close_matches(key, CHIPS, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f"unknown chip {name!r}; {hint}known chips are {', '.join(CHIPS)}")


def measured_chip(name: str, *, memory: int, bandwidth: float, peak_16bit: float, peak_32bit: float) -> Chip:
    """This host as a chip, from `costmodel.measure` instead of a data sheet (B, B/s, FLOP/s)."""
    figures = {"memory": memory, "bandwidth": bandwidth, "16-bit peak": peak_16bit, "32-bit peak": peak_32bit}
    for field, value in figures.items():
        if not value > 0:
            raise UserError(f"measured chip {name}: {field} is {value}; it must be above 0, so measure again")
    return Chip(name, memory, bandwidth, peak_16bit, source="measured", peak_32bit=peak_32bit)
