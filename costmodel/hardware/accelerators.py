"""Whether this machine has an accelerator, told from its device files before JAX is imported. No JAX."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

# NVIDIA's driver, the same within WSL, AMD's driver, and TPUs by the older and the newer interface.
FILES = ("nvidia[0-9]*", "nvidiactl", "dxg", "kfd", "accel*", "vfio/[0-9]*")


def without_accelerator(devices: Path = Path("/dev")) -> bool:
    """True only where it is certain: on Linux, with none of the device files that an accelerator's driver makes."""
    return sys.platform == "linux" and not any(next(devices.glob(pattern), None) for pattern in FILES)


def spare_jax_the_search(environment: MutableMapping[str, str] = os.environ, devices: Path = Path("/dev")) -> None:
    """Tell JAX to use the CPU where there is nothing else, unless JAX_PLATFORMS is set; call it before JAX is imported.

    The extras gpu-targets and tpu-targets are compilers, but JAX takes them for drivers: where it looks for devices it prints a
    traceback for want of the CUDA libraries, and asks the network which TPU this is.
    """
    if "JAX_PLATFORMS" not in environment and without_accelerator(devices):
        environment["JAX_PLATFORMS"] = "cpu"
