"""A calibration as a value. Oracles: quantiles by hand, JSON there and back."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from typing import Any

import numpy as np
import pytest

from costmodel.calibration.calibration import Calibration, quantiles
from costmodel.calibration.device import Device
from costmodel.calibration.form import Parameter
from costmodel.calibration.forms import FORMS
from models.errors import UserError

DEVICE = Device("made up", 1e12, 100e12, 100, 50e6)


def calibration(form: str = "prefill attention", **changes: Any) -> Calibration:
    parameters = tuple(Parameter(s.name, s.start, 0.02, s.unit, s.meaning) for s in FORMS[form].specs)
    made = Calibration(form, DEVICE, parameters, quantiles(np.linspace(-0.2, 0.3, 501)), 501, "made up")
    return dataclasses.replace(made, **changes)


def test_an_interval_is_that_of_the_errors():
    """Errors evenly from -0.2 to 0.3: the middle 90 % reach from -0.175 to 0.275."""
    low, high = calibration().interval(2.0, 0.9)
    assert (low, high) == pytest.approx((2 * math.exp(-0.175), 2 * math.exp(0.275)), rel=1e-9)
    assert calibration().residual == pytest.approx(0.6826 * 0.5 / 2, rel=1e-3)


def test_a_chip_never_fitted_has_a_wider_one():
    """Half widths are added as sds of independent errors are."""
    low, high = calibration(widened=0.2).band(0.9)
    more = 0.2 * statistics.NormalDist().inv_cdf(0.95)
    assert (low, high) == pytest.approx((0.05 - math.hypot(0.225, more), 0.05 + math.hypot(0.225, more)), rel=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, 90.0])
def test_a_level_that_is_none(level: float):
    with pytest.raises(UserError, match="a share of cases between 0 and 1"):
        calibration().interval(1.0, level)


@pytest.mark.parametrize("form", FORMS)
def test_json(form: str):
    made = calibration(form, widened=0.1)
    assert Calibration.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 2}, "no calibration"),
        ({"form": "conv"}, "form 'conv' is unknown"),
        ({"parameters": []}, "has the parameters launch"),
        ({"errors": []}, "and errors; measure again"),
        ({"device": {"name": "x"}}, "as it was written"),
        ({"points": "many"}, "as it was written"),
    ],
)
def test_json_that_is_none(change: dict[str, Any], says: str):
    with pytest.raises(UserError, match=says):
        Calibration.from_json({**calibration().to_json(), **change})
    with pytest.raises(UserError, match="no calibration"):
        Calibration.from_json([])
    with pytest.raises(UserError, match="points is missing"):
        Calibration.from_json({name: value for name, value in calibration().to_json().items() if name != "points"})


@pytest.mark.parametrize(
    ("value", "unit", "shown"), [(0.913, "", "91.3 %"), (2.5e-6, "s", "2.5 µs"), (1e11, "B/s", "100 GB/s")]
)
def test_a_parameter_as_people_read_it(value: float, unit: str, shown: str):
    assert Parameter("p", value, 0.1, unit, "").shown == shown
