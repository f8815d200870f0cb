"""Time of a matmul kernel of 16-bit operands on a GPU: y [m, n] = x [m, k] @ w [k, n].

A library has kernels of many tile sizes and takes the one that suits, so the time is the least over them. A tile of the result is one
core's work: tiles beyond the number of cores wait for a second wave (tile quantisation), a core loads the operands of its tile through
its own port, and k may be split over several cores, whose partial results a last pass adds up.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar

import numpy as np

from costmodel.calibration.device import Device
from costmodel.calibration.form import Features, Spec, Values

ITEM = 2  # B of an element
STEP = 64  # of k, that a kernel loads at a time
TILES = (
    (16, 64),
    (16, 128),
    (32, 64),
    (32, 128),
    (64, 64),
    (64, 128),
    (64, 256),
    (128, 64),
    (128, 128),
    (128, 256),
    (256, 128),
)
SPLITS = (1, 2, 4, 8, 16)

_KERNELS = np.array([(*tile, split) for tile, split in itertools.product(TILES, SPLITS)], np.float64)


@dataclasses.dataclass(frozen=True)
class Gemm:
    """Features: m rows (tokens), n outputs, k inputs."""

    name: ClassVar[str] = "gemm"
    specs: ClassVar[tuple[Spec, ...]] = (
        Spec("launch", "s", 2.5e-6, "of a kernel, however small", "matmuls of a few kB"),
        Spec(
            "bandwidth", "", 0.9, "of the memory's bandwidth that large weights reach", "few rows over weights beyond the cache"
        ),
        Spec("peak", "", 0.8, "of the dense peak that tiles reach", "many rows"),
        Spec("core rate", "B/s", 100e9, "that a core loads the operands of its tile at", "few rows over small weights"),
        Spec("wave", "s", 1e-6, "of every wave of tiles: filling the pipeline and writing results", "small matmuls"),
        Spec("merge", "s", 1.5e-6, "of adding up what a split k left in parts", "few outputs and a long k"),
    )

    def seconds(self, values: Values, features: Features, device: Device, xp: Any) -> Any:
        """s [points]; see the module."""
        m, n, k = (xp.asarray(features[name], float)[..., None] for name in ("m", "n", "k"))
        rows, columns, split = (xp.asarray(column) for column in _KERNELS.T)
        depth = STEP * xp.ceil(k / (split * STEP))
        waves = xp.ceil(xp.ceil(m / rows) * xp.ceil(n / columns) * split / device.units)
        compute = waves * 2 * rows * columns * depth / (values["peak"] * device.peak / device.units)
        load = waves * ITEM * (xp.minimum(m, rows) + xp.minimum(n, columns)) * depth / values["core rate"]
        memory = ITEM * (m * k + n * k + m * n) / (values["bandwidth"] * device.bandwidth)
        body = xp.maximum(xp.maximum(compute, load), memory) + waves * values["wave"]
        return values["launch"] + (body + xp.where(split > 1, values["merge"], 0.0)).min(axis=-1)

    def roofline(self, features: Features, device: Device) -> Any:
        m, n, k = (np.asarray(features[name], float) for name in ("m", "n", "k"))
        return np.maximum(ITEM * (m * k + n * k + m * n) / device.bandwidth, 2 * m * n * k / device.peak)
