"""A fitted form: parameters with their errors, and how far measured times strayed from it where it had not seen them.

Predicting takes NumPy alone. The interval of a prediction is that of the errors on points held out while it was fitted (split conformal
prediction, Lei et al. 2018; folds as in Barber et al. 2021), so it claims no shape of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from costmodel.calibration.device import Device
from costmodel.calibration.form import Features, Parameter, Scalars
from costmodel.calibration.forms import FORMS
from models.errors import UserError

FORMAT = 1
_FIELDS = ("form", "device", "parameters", "errors", "points", "source", "widened")


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was fitted.

    Attributes:
      form: name of the form, one of `FORMS`.
      device: what its times are of.
      parameters: of the form, in its order.
      errors: quantiles of log(measured / predicted) on points that were held out, evenly spaced from the least to the largest.
      points: that were fitted.
      source: what was measured, and when, for people.
      widened: sd of the logarithm that is added for what `errors` could not see: a chip that was never fitted
        (`costmodel.calibration.transfer`), or another minute of a machine whose speed drifts (`costmodel.calibration.noise`).
    """

    form: str
    device: Device
    parameters: tuple[Parameter, ...]
    errors: tuple[float, ...]
    points: int
    source: str
    widened: float = 0.0

    @functools.cached_property
    def values(self) -> dict[str, float]:
        """Of the parameters, by name."""
        return {parameter.name: parameter.value for parameter in self.parameters}

    @property
    def residual(self) -> float:
        """sd of the logarithm of the error: half of what the middle 68 % of errors span, and the widening."""
        low, high = np.quantile(self.errors, (0.1587, 0.8413))
        return math.hypot(float(high - low) / 2, self.widened)

    def seconds(self, features: Features) -> Any:
        """s (witness: calibrated), for floats or arrays [points]."""
        return FORMS[self.form].seconds(self.values, features, self.device, np)

    def second(self, features: Features) -> float:
        """As `seconds`, of one point and quicker. Not for matmuls, whose kernels are many."""
        return float(FORMS[self.form].seconds(self.values, features, self.device, Scalars))

    def roofline(self, features: Features) -> Any:
        """s (witness: analytical): what the device's figures alone say."""
        return FORMS[self.form].roofline(features, self.device)

    def interval(self, seconds: Any, level: float = 0.9) -> tuple[Any, Any]:
        """(low, high): where the measured time of a prediction lies in `level` of cases.

        Args:
          seconds: that were predicted, a float or an array.

        Raises:
          UserError: a level that is none.
        """
        low, high = self.band(level)
        return seconds * math.exp(low), seconds * math.exp(high)

    def band(self, level: float = 0.9) -> tuple[float, float]:
        """(low, high) of the logarithm of measured over predicted."""
        if not 0 < level < 1:
            raise UserError(f"level is {level}; an interval covers a share of cases between 0 and 1, such as 0.9")
        low, middle, high = np.quantile(self.errors, ((1 - level) / 2, 0.5, (1 + level) / 2)).tolist()
        more = self.widened * statistics.NormalDist().inv_cdf((1 + level) / 2)
        return middle - math.hypot(middle - low, more), middle + math.hypot(high - middle, more)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `from_json`."""
        return {
            "format": FORMAT,
            "form": self.form,
            "device": self.device._asdict(),
            "parameters": [parameter.to_json() for parameter in self.parameters],
            "errors": list(self.errors),
            "points": self.points,
            "source": self.source,
            "widened": self.widened,
        }

    @classmethod
    def from_json(cls, given: Any) -> Self:
        """The calibration that `to_json` gave.

        Raises:
          UserError: it is something else.
        """
        if not isinstance(given, Mapping) or given.get("format") != FORMAT:
            raise UserError("it is no calibration; give a file that python -m jaxserve.calibrate or costmodel calibrate wrote")
        if absent := [name for name in _FIELDS if name not in given]:
            raise UserError(f"calibration: {absent[0]} is missing; give a file as it was written")
        if given["form"] not in FORMS:
            raise UserError(f"calibration: form {given['form']!r} is unknown; there are {', '.join(FORMS)}")
        try:
            device = Device(**given["device"])
            parameters = tuple([Parameter(**each) for each in given["parameters"]])
            errors = tuple(map(float, given["errors"]))
            found = cls(
                given["form"], device, parameters, errors, int(given["points"]), given["source"], float(given["widened"])
            )
        except (TypeError, ValueError) as error:
            raise UserError(f"calibration: {error}; give a file as it was written") from None
        wanted = [spec.name for spec in FORMS[found.form].specs]
        if [parameter.name for parameter in parameters] != wanted or not errors:
            raise UserError(f"calibration: a {found.form} has the parameters {', '.join(wanted)} and errors; measure again")
        return found


def quantiles(errors: Any) -> tuple[float, ...]:
    """What a calibration keeps of errors: 101 quantiles."""
    return tuple(np.quantile(np.asarray(errors, float), np.linspace(0, 1, 101)).tolist())
