"""A form: how the time of a kernel or a step follows from a few parameters and from what it has to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from costmodel.calibration.device import Device
from costmodel.calibration.parameter import Spec

Features: TypeAlias = Mapping[str, Any]  # name -> float or array [points]
Values: TypeAlias = Mapping[str, Any]  # name of a parameter -> its value


class Form(Protocol):
    """Written once for NumPy, which predicts, and for JAX, which fits."""

    @property
    def name(self) -> str:
        """By which a calibration finds it again."""

    @property
    def specs(self) -> tuple[Spec, ...]:
        """What is fitted."""

    def seconds(self, values: Values, features: Features, device: Device, xp: Any) -> Any:
        """s [points]; `xp` is numpy or jax.numpy."""

    def roofline(self, features: Features, device: Device) -> Any:
        """s [points] with nothing fitted: the longer of bytes over bandwidth and FLOPs over peak, on the data sheet's figures."""
