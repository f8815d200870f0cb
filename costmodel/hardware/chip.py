"""One chip: what a step's bytes, FLOPs and messages are divided by to become seconds.

Peaks are dense. A vendor's larger figure with 2:4 structured sparsity is kept in a field of its own and no formula reads it:
decode multiplies dense weights, and with 1979 instead of 989 TFLOP/s the ridge of an H100 would read 591 FLOP/B.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from models.errors import UserError

# float | np.ndarray | jax.Array. Written as Any because the three share no static type that has arithmetic, and a caller who
# passes floats should get floats to format and round.
Quantity: TypeAlias = Any

_WIDTHS = {4: ("float32",), 2: ("bfloat16", "float16"), 1: ("float8", "int8")}  # what an itemsize stands for, first come first
_SPELLINGS = {"bf16": "bfloat16", "fp16": "float16", "f16": "float16", "fp32": "float32", "f32": "float32", "fp8": "float8"}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip, or the measured host, or a stack of chips (see `stack`). GB = 1e9 bytes, as data sheets count.

    A JAX pytree whose leaves are the figures, so that a bandwidth can be traced, differentiated by, or an array of many.

    Attributes:
      memory: B that the chip has, before anything is taken off for a runtime.
      bandwidth: B/s between memory and the chip.
      peaks: dense matmul FLOP/s by what the operands are in: bfloat16, float16, float32 (true f32), tf32, float8, int8, int4.
      sparse_peaks: the same with 2:4 structured sparsity, for display only.
      link_bandwidth: B/s of all links to other chips together, in one direction; None where the source has none.
      on_chip: B of the last memory before HBM that a program's data can stay in: the last cache of a GPU, the VMEM of a TPU.
      source: where the figures come from, or "measured".
    """

    name: str = dataclasses.field(metadata={"static": True})
    memory: Quantity
    bandwidth: Quantity
    peaks: Mapping[str, Quantity] = dataclasses.field(hash=False)
    source: str = dataclasses.field(metadata={"static": True})
    sparse_peaks: Mapping[str, Quantity] = dataclasses.field(default_factory=dict, hash=False)
    link_bandwidth: Quantity | None = None
    on_chip: Quantity | None = None

    @property
    def ridge(self) -> Quantity:
        """FLOP/B above which dense 16-bit work is bound by compute (the roofline's corner, Williams et al. 2009)."""
        return self.peak(2) / self.bandwidth

    def peak(self, dtype: str | int) -> Quantity:
        """Dense matmul FLOP/s for operands of a dtype, or of so many bytes an element.

        Raises:
          UserError: no figure is held; guessing one would put a wrong roof on a plot.
        """
        known = list(self.peaks)
        if isinstance(dtype, int):
            found = [name for name in _WIDTHS.get(dtype, ()) if name in self.peaks]
            widths = sorted(width for width, names in _WIDTHS.items() if set(names) & set(known))
            asked = f"operands of {dtype} bytes; use a width of {' or '.join(map(str, widths))} bytes"
        else:
            name = peak_name(dtype)
            found, asked = [name] if name in self.peaks else [], f"{dtype}; it has {', '.join(known)}"
        if not found:
            raise UserError(f"chip {self.name}: no dense peak for {asked}")
        return self.peaks[found[0]]


def peak_name(dtype: str) -> str:
    """The name in `Chip.peaks` of a dtype in any usual spelling: fp8 and float8_e4m3fn are both float8."""
    name = _SPELLINGS.get(dtype.lower(), dtype.lower())
    return "float8" if name.startswith("float8") else name


def measured_chip(name: str, *, memory: int, bandwidth: float, peak_16bit: float, peak_32bit: float) -> Chip:
    """This host as a chip, from `costmodel.hardware.ceilings` instead of a data sheet (B, B/s, FLOP/s)."""
    figures = {"memory": memory, "bandwidth": bandwidth, "16-bit peak": peak_16bit, "32-bit peak": peak_32bit}
    for field, value in figures.items():
        if not value > 0:
            raise UserError(f"measured chip {name}: {field} is {value}; it must be above 0, so measure again")
    return Chip(name, float(memory), bandwidth, {"bfloat16": peak_16bit, "float32": peak_32bit}, "measured")


def stack(chips: Sequence[Chip]) -> Chip:
    """Several chips as one whose figures are f64 arrays [chips], to sweep over with `jax.vmap` or by broadcasting.

    It keeps the peaks, and the link bandwidth, that all of them have.

    Raises:
      UserError: no chips.
    """
    if not chips:
        raise UserError("stack: there are 0 chips; give at least 1")

    def column(values: list[Any]) -> Any:
        return None if any(value is None for value in values) else np.array(values, np.float64)

    def shared(tables: list[Mapping[str, Quantity]]) -> dict[str, Any]:
        return {name: column([table[name] for table in tables]) for name in tables[0] if all(name in t for t in tables)}

    return Chip(
        name=", ".join(chip.name for chip in chips),
        memory=column([chip.memory for chip in chips]),
        bandwidth=column([chip.bandwidth for chip in chips]),
        peaks=shared([chip.peaks for chip in chips]),
        source="; ".join(dict.fromkeys(chip.source for chip in chips)),
        sparse_peaks=shared([chip.sparse_peaks for chip in chips]),
        link_bandwidth=column([chip.link_bandwidth for chip in chips]),
        on_chip=column([chip.on_chip for chip in chips]),
    )
