"""The kernels of one GPU, calibrated: matmuls, attention of rows that decode, attention of pieces of prompts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from costmodel.calibration.calibration import Calibration, quantiles
from costmodel.calibration.decode_attention import DecodeAttention
from costmodel.calibration.device import Device
from costmodel.calibration.fit import fit
from costmodel.calibration.form import Features, Form, Values
from costmodel.calibration.gemm import Gemm
from costmodel.calibration.held_out import HeldOut, hold_out
from costmodel.calibration.kernel_times import read_times
from costmodel.calibration.prefill_attention import PrefillAttention, pieces
from costmodel.hardware.chips import find_chip
from models.errors import UserError

CHIP = "h100-sxm"
SAMPLE = 2000  # points of a table that a fit takes, drawn at random: more of them move no parameter by its error


class Kernel(NamedTuple):
    """A table of times and the form that is to explain it.

    Attributes:
      groups: [points] by what is held out together: a shape, a batch, a context.
    """

    form: Form
    features: Features
    seconds: np.ndarray
    device: Device
    groups: Mapping[str, np.ndarray]
    source: str

    def sample(self, seed: int = 0, most: int = SAMPLE) -> Kernel:
        """So many of its points at most."""
        count = len(self.seconds)
        if count <= most:
            return self
        return self.of(np.sort(np.random.default_rng(seed).choice(count, most, replace=False)))

    def of(self, chosen: Any) -> Kernel:
        """Some of its points: indices, or bools."""
        features = {name: column[chosen] for name, column in self.features.items()}
        groups = {name: column[chosen] for name, column in self.groups.items()}
        return self._replace(features=features, seconds=self.seconds[chosen], groups=groups)

    def held_out(self, by: str, **options: Any) -> HeldOut:
        """See `hold_out`."""
        return hold_out(self.form, self.features, self.seconds, self.device, by, self.groups[by], **options)

    def calibrate(self, used: Any = None, start: Values | None = None) -> Calibration:
        """Fit it; the errors of predictions are those of its shapes when they are held out.

        Args:
          used: bool [points], those to look at; None for all.
          start: where the fit begins, to be quick.
        """
        labels = np.unique(self.groups["shape"], return_inverse=True, axis=0)[1].ravel().tolist()
        chosen = np.ones(len(self.seconds), bool) if used is None else np.asarray(used, bool)
        found = fit(self.form, self.features, self.seconds, self.device, groups=labels, used=chosen, start=start)
        errors = quantiles(self.held_out("shape", used=chosen, start=found.values).logs[chosen])
        return Calibration(self.form.name, self.device, found.parameters(self.form), errors, int(chosen.sum()), self.source)


class KernelCalibration(NamedTuple):
    """The three of them, on one chip."""

    gemm: Calibration
    decode: Calibration
    prefill: Calibration

    @property
    def device(self) -> Device:
        return self.gemm.device

    def to_json(self) -> dict[str, Any]:
        """Plain data for `from_json`."""
        return {name: each.to_json() for name, each in self._asdict().items()}

    @classmethod
    def from_json(cls, given: Any) -> Self:
        """Raises UserError for what `to_json` didn't give."""
        if not isinstance(given, Mapping) or set(given) != set(cls._fields):
            raise UserError("it holds no kernels of a chip; give a file that python -m costmodel calibrate --out wrote")
        return cls(**{name: Calibration.from_json(each) for name, each in given.items()})


def gemm_table(folder: Path) -> Kernel:
    """Matmuls of the H100; a shape is (n, k), a batch m."""
    path = folder / "h100_sxm_gemm.csv"
    features, seconds = read_times(path, ("m", "n", "k"))
    groups = {"shape": np.stack([features["n"], features["k"]], axis=1), "batch": features["m"]}
    return Kernel(Gemm(), features, seconds, _device(), groups, path.name)


def decode_table(folder: Path) -> Kernel:
    """Attention of rows that decode; a shape is (heads, KV heads). The cache is warm: each kernel ran over and over."""
    path = folder / "h100_sxm_decode_attention.csv"
    names = ("batch_size", "num_heads", "num_key_value_heads", "head_dim", "context")
    table, seconds = read_times(path, names)
    columns = dict(zip(("batch", "heads", "kv_heads", "head_dim", "context"), table.values(), strict=True))
    features = {**columns, "cold": np.zeros(len(seconds))}
    groups = {
        "shape": np.stack([columns["heads"], columns["kv_heads"]], axis=1),
        "batch": columns["batch"],
        "context": columns["context"],
    }
    return Kernel(DecodeAttention(), features, seconds, _device(), groups, path.name)


def prefill_table(folder: Path) -> Kernel:
    """Attention of whole prompts; a shape is (heads, KV heads), a context the length of the prompts."""
    path = folder / "h100_sxm_prefill_attention.csv"
    table, seconds = read_times(path, ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim"))
    batch, length, heads, kv_heads, head_dim = table.values()
    one = {size: pieces([(0, int(size))]) for size in np.unique(length)}
    sums = {name: batch * np.array([one[size][name] for size in length]) for name in next(iter(one.values()))}
    features = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, **sums}
    groups = {"shape": np.stack([heads, kv_heads], axis=1), "batch": batch, "context": length}
    return Kernel(PrefillAttention(), features, seconds, _device(), groups, path.name)


@functools.cache  # several runs of one process ask for the same
def h100(folder: Path) -> KernelCalibration:
    """The kernels of a folder of tables. Takes some seconds.

    Raises:
      UserError: a table is missing or makes no sense.
    """
    return KernelCalibration(*(table(folder).sample().calibrate() for table in (gemm_table, decode_table, prefill_table)))


def _device() -> Device:
    return Device.of(find_chip(CHIP))
