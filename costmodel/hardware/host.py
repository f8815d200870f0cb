"""Who this machine is, and what was measured on it before."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files.json_text import read_object

_IMPORTED = time.time()


def host_key() -> str:
    """A line that changes whenever a measurement would have to be repeated: processor, cores, JAX device and version."""
    import jax  # here, so that what else is known of a machine can be had without

    device = jax.devices()[0]
    kind = _cpu() if device.platform == "cpu" else f"{device.device_kind} x{jax.device_count()}"
    return f"{kind}, {cores()} cores, {device.platform}, jax {jax.__version__}"


def cores() -> int:
    """Cores that this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def processor() -> str:
    """The processor with its instruction sets: machine code that was made for one may end a process on another.

    Where the system does not say what it has, the machine's own name stands for it.
    """
    wanted = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU implementer", "CPU architecture", "CPU variant",
              "CPU part", "Features")  # fmt: skip
    fields = _cpu_fields()
    named = {name: " ".join(sorted(fields[name].split())) for name in wanted if name in fields}
    sets = named.keys() & {"flags", "Features"}
    return repr((platform.machine(), named if sets else (platform.processor(), platform.node())))


def process_start() -> float:
    """When this process began, in s since 1970; where the system does not say, when it imported this module."""
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # since the machine was started
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    return _IMPORTED


def resident_bytes(status: Path = Path("/proc/self/statm")) -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def memory_bytes() -> int:
    """Bytes of physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_memory_bytes(files: Path = Path("/proc"), container: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can still be allocated: what the machine can give without swapping, or what its container (cgroup 2) may still take.

    All that the machine has where the system does not say. Files that the container can drop from its cache are free.
    """
    try:
        fields = dict(line.split(":", 1) for line in (files / "meminfo").read_text(encoding="ascii").splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = memory_bytes()
    try:
        limit, used = (int((container / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(line.split() for line in (container / "memory.stat").read_text().splitlines())
        return min(free, limit - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):  # "max" is no number: no limit
        return free


def last_level_cache_bytes(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the largest cache of core 0; 32 MiB where the system does not say."""
    units = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
    sizes = [2**25]
    for path in cpu.glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
        if match:
            sizes.append(int(match[1]) * units[match[2]])
    return max(sizes)


def today() -> str:
    """The date in UTC, as 2026-01-31."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class Store:
    """A small JSON file of measurements by machine: ``{host key: {name: entry}}``.

    It is a cache: an unreadable or damaged file counts as empty, and a folder that cannot be written to is no error; the next
    run measures again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_folder() / "ceilings.json"

    def get(self, host: str, name: str) -> Mapping[str, Any] | None:
        entries = self._read().get(host)
        entry = entries.get(name) if isinstance(entries, dict) else None
        return entry if isinstance(entry, dict) else None

    def put(self, host: str, name: str, entry: Mapping[str, Any]) -> None:
        content = self._read()
        known = content.get(host)
        content[host] = {**(known if isinstance(known, dict) else {}), name: dict(entry)}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Written beside and moved into place, so that a run that starts meanwhile never reads half a file.
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            os.replace(file.name, self.path)

    def _read(self) -> dict[str, Any]:
        try:
            return read_object(self.path)
        except UserError:  # what is kept there can be measured again
            return {}


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/jaxserve`, or `~/.cache/jaxserve`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxserve"


def _cpu() -> str:
    """Model name, family and model of the processor: virtual machines often hide the name, the numbers stay."""
    fields = {"model name": "cpu", "cpu family": "?", "model": "?"} | _cpu_fields()
    return f"{fields['model name']} (family {fields['cpu family']} model {fields['model']})"


def _cpu_fields() -> dict[str, str]:
    """What Linux says of the first core; nothing elsewhere."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


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
