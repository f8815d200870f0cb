"""A form: how the time of a kernel or a step follows from a few parameters and from what it has to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from costmodel.calibration.device import Device

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


# One physical figure of a machine that times reveal: what it is, and once it is fitted, its value and error.


class Spec(NamedTuple):
    """A parameter that is to be fitted.

    Attributes:
      name: unique in its form.
      unit: "" of a fraction.
      start: where the fit begins. All parameters are positive and fitted as logarithms.
      meaning: one line for people.
      needs: what has to be measured for it to show.
      nothing: there may be no such cost; where none can be told from 0, it is 0. Any other parameter is refused then.
    """

    name: str
    unit: str
    start: float
    meaning: str
    needs: str
    nothing: bool = False


class Parameter(NamedTuple):
    """A parameter that was fitted.

    Attributes:
      error: standard error of the value's logarithm: 0.02 is 2 % of the value.
      unit, meaning: as of its `Spec`.
    """

    name: str
    value: float
    error: float
    unit: str
    meaning: str

    @property
    def shown(self) -> str:
        """The value as people read it: fractions in %, seconds in µs, rates in GB/s."""
        scales = {"": (100.0, "%"), "s": (1e6, "µs"), "B/s": (1e-9, "GB/s"), "B": (1e-6, "MB")}
        scale, unit = scales.get(self.unit, (1.0, self.unit))
        return f"{self.value * scale:,.4g} {unit}"

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


# What forms need of NumPy, for plain floats: predictors are asked before every step, and an array of one is slow.


class Scalars:
    """Stands in for the module `numpy` where every feature is one number."""

    ceil = staticmethod(math.ceil)
    maximum = staticmethod(max)
    minimum = staticmethod(min)
    log2 = staticmethod(math.log2)

    @staticmethod
    def asarray(value: Any, kind: type = float) -> Any:
        return kind(value)
