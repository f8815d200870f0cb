"""The chips that a program can be compiled for without having one, and how each compiler is told which one is meant.

Names are those of `costmodel.hardware.chips`. A GPU is described by the figures that XLA's GPU compiler reads, its
`GpuTargetConfigProto` as text; a TPU by a name and the extent of its torus.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from costmodel.hardware.chips import find_chip
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class GpuTarget:
    """One GPU as its driver describes it to XLA. Source: the target descriptions that OpenXLA publishes for these GPUs.

    Attributes:
      device: its name.
      cores: streaming multiprocessors; each has `fpus` units and `shared` B of shared memory, `optin` B of them for one block.
      bandwidth: B/s. l2: B. clock: GHz.
      memory: B that the driver reports.
      capability: CUDA compute capability; from 9 on with the features that only this generation has.
    """

    device: str
    cores: int
    shared: int
    optin: int
    fpus: int
    bandwidth: int
    l2: int
    clock: float
    memory: int
    capability: int

    platform: ClassVar[str] = "cuda"
    extra: ClassVar[str] = "gpu-targets"
    package: ClassVar[str] = "jax-cuda13-plugin"
    jax_extra: ClassVar[str] = "cuda13-local"
    host: ClassVar[int] = 8  # GPUs
    environment: ClassVar[Mapping[str, str]] = {}

    def topology(self, chips: int) -> dict[str, Any]:
        """Arguments of `get_topology_desc`: slices x hosts x GPUs of a host, and the GPU."""
        if chips > self.host and chips % self.host:
            raise UserError(f"{chips} GPUs do not fill hosts of {self.host}; give at most {self.host}, or a multiple of it")
        return {
            "platform": self.platform,
            "topology_name": self.device,
            "topology": f"1x{math.ceil(chips / self.host)}x{min(chips, self.host)}",
            "target_config": self._config(),
        }

    def _config(self) -> str:
        features = "ACCELERATED_FEATURES" if self.capability >= 9 else "NONE"
        return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {self.shared}
  threads_per_core_limit: 2048
  core_count: {self.cores}
  fpus_per_core: {self.fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {self.bandwidth}
  l2_cache_size: {self.l2}
  clock_rate_ghz: {self.clock}
  device_memory_size: {self.memory}
  shared_memory_per_block_optin: {self.optin}
  cuda_compute_capability {{ major: {self.capability} feature_extension: {features} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 7 }}
runtime_version {{ major: 13 }}
device_description_str: "{self.device}"
"""


@dataclasses.dataclass(frozen=True)
class TpuTarget:
    """A TPU by the name that its compiler knows.

    Attributes:
      axes: of its torus.
      devices: of a chip. XLA takes both cores of a v4 or v5p as one device; those of a v7x are two, each with half the chip.
      config: how its cores work together, where that is not the compiler's default.
    """

    kind: str
    axes: int
    devices: int = 1
    config: str | None = None

    memory: ClassVar[None] = None  # the compiler itself refuses what does not fit

    platform: ClassVar[str] = "tpu"
    extra: ClassVar[str] = "tpu-targets"
    package: ClassVar[str] = "libtpu"
    jax_extra: ClassVar[str] = "tpu"
    # Otherwise the library asks a metadata server, on the network, which machine this is; and takes a lock of which there is one.
    environment: ClassVar[Mapping[str, str]] = {
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }

    def topology(self, chips: int) -> dict[str, Any]:
        """Arguments of `get_topology_desc` for so many devices: the smallest torus of whole hosts (4 chips), as square as can be."""
        chips = -(-chips // self.devices)
        if chips > 4 and chips & (chips - 1):
            raise UserError(f"{chips} TPU chips make no torus; give at most 4, or a power of two")
        sides = [2, 2] + [1] * (self.axes - 2)
        while math.prod(sides) < chips:
            sides[sides.index(min(sides))] *= 2
        extent = "x".join(map(str, sorted(sides, key=lambda side: (side == 1, side))))
        options = {} if self.config is None else {"chip_config_name": self.config}
        return {"platform": self.platform, "topology_name": f"{self.kind}:{extent}", **options}


Target = GpuTarget | TpuTarget

TARGETS: Mapping[str, Target] = {
    "a100-sxm-80gb": GpuTarget(
        "NVIDIA A100-SXM4-80GB", 108, 167936, 166912, 64, 2_039_040_000_000, 41943040, 1.41, 85100068864, 8
    ),
    "h100-sxm": GpuTarget("NVIDIA H100 80GB HBM3", 132, 233472, 232448, 128, 3_352_320_000_000, 52428800, 1.98, 84942979072, 9),
    "h200": GpuTarget("NVIDIA H200", 132, 233472, 232448, 128, 4_800_000_000_000, 52428800, 1.98, 151397597184, 9),
    "b200": GpuTarget("NVIDIA B200", 148, 233472, 232448, 128, 7_672_320_000_000, 132644864, 1.965, 191514411008, 10),
    "tpu-v4": TpuTarget("v4", 3, config="megacore"),
    "tpu-v5e": TpuTarget("v5e", 2),
    "tpu-v5p": TpuTarget("v5p", 3),
    "tpu-v6e": TpuTarget("v6e", 2),
    "tpu-v7x": TpuTarget("tpu7x", 3, devices=2),
}


def find_target(name: str) -> tuple[str, Target]:
    """(name in `costmodel.hardware.chips`, target) of a chip by any name that `find_chip` knows.

    Raises:
      UserError: no such chip, or one for which no compiler is at hand.
    """
    chip = find_chip(name).name
    if chip not in TARGETS:
        raise UserError(
            f"no program can be compiled for {chip} from here; compilers are at hand for {', '.join(TARGETS)} and cpu"
        )
    return chip, TARGETS[chip]
