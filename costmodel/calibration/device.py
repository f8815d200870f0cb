"""What a form of kernel times has to know of a chip: what its data sheet says, in plain floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from costmodel.hardware.chip import Chip
from models.errors import UserError

# Cores that work side by side, which share the tiles of a matmul: SMs of NVIDIA GPUs, from the data sheets and white papers that
# `costmodel.hardware.chips` names for the same chips.
UNITS: Mapping[str, int] = {
    "a100-pcie-40gb": 108,
    "a100-pcie-80gb": 108,
    "a100-sxm-40gb": 108,
    "a100-sxm-80gb": 108,
    "h100-pcie": 114,
    "h100-sxm": 132,
    "h100-nvl": 132,
    "h200": 132,
    "b200": 148,
    "l4": 58,
    "l40s": 142,
    "rtx-4090": 128,
    "rtx-pro-6000": 188,
}


class Device(NamedTuple):
    """A chip in plain figures.

    Attributes:
      bandwidth: B/s of its memory, as its data sheet has it or as simple reads measured it.
      peak: dense FLOP/s in what is multiplied.
      units: cores that share the tiles of a kernel.
      cache: B of the last cache.
    """

    name: str
    bandwidth: float
    peak: float
    units: int
    cache: float

    @classmethod
    def of(cls, chip: Chip, dtype: str = "bfloat16", units: int | None = None) -> Self:
        """That of a chip.

        Args:
          dtype: what is multiplied.
          units: where the chip is none of `UNITS`.

        Raises:
          UserError: nobody says how many units it has, or how large its last cache is; no peak for the dtype.
        """
        cores = UNITS.get(chip.name) if units is None else units
        if cores is None:
            raise UserError(
                f"chip {chip.name}: the number of its SMs is not known, which tiles are shared by; give units, or take one of "
                f"{', '.join(UNITS)}"
            )
        if chip.on_chip is None:
            raise UserError(f"chip {chip.name}: the size of its last cache is not known; give a chip with on_chip")
        return cls(chip.name, float(chip.bandwidth), float(chip.peak(dtype)), cores, float(chip.on_chip))
