"""The fit. Oracles: parameters that times were made from, NumPy's least squares, and the textbook's sandwich formula."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest

from costmodel.calibration.decode_attention import DecodeAttention
from costmodel.calibration.device import Device
from costmodel.calibration.fit import HUBER, fit
from costmodel.calibration.form import Features, Spec, Values
from costmodel.calibration.gemm import Gemm
from costmodel.calibration.held_out import hold_out
from models.errors import UserError

H100 = Device("h100-sxm", 3.35e12, 989e12, 132, 50 * 2**20)


@dataclasses.dataclass(frozen=True)
class Line:
    """a + x / b."""

    name: ClassVar[str] = "line"
    specs: ClassVar[tuple[Spec, ...]] = (
        Spec("a", "s", 1.0, "at 0", "small x"),
        Spec("b", "B/s", 1.0, "rate", "large x"),
    )

    def seconds(self, values: Values, features: Features, device: Device, xp: Any) -> Any:
        return values["a"] + xp.asarray(features["x"], float) / values["b"]

    def roofline(self, features: Features, device: Device) -> Any:
        return np.asarray(features["x"], float) / device.bandwidth


def test_what_times_were_made_from_is_found():
    draw = np.random.default_rng(0)
    m, n, k = (np.exp(draw.uniform(np.log(low), np.log(high), 300)).round() for low, high in ((1, 4096), (64, 3e4), (64, 3e4)))
    features = {"m": m, "n": n, "k": k}
    made = {"launch": 3e-6, "bandwidth": 0.8, "peak": 0.7, "core rate": 80e9, "wave": 0.7e-6, "merge": 2e-6}
    found = fit(Gemm(), features, Gemm().seconds(made, features, H100, np), H100)
    assert found.values == pytest.approx(made, rel=1e-3)


@pytest.mark.slow
def test_of_another_form_and_with_noise_within_its_errors():
    draw = np.random.default_rng(1)
    batch, kv_heads, context = (2.0 ** draw.integers(0, most, 300) for most in (9, 4, 15))
    features = {"batch": batch, "heads": 4 * kv_heads, "kv_heads": kv_heads, "head_dim": 128, "context": context, "cold": 0.0}
    made = {
        "launch": 8e-6,
        "bandwidth": 0.85,
        "cache gain": 2.0,
        "cache share": 0.7,
        "task": 2e-6,
        "exposed": 0.3,
        "merge": 1e-6,
    }
    noise = np.exp(draw.normal(0, 0.05, 300))
    found = fit(DecodeAttention(), features, DecodeAttention().seconds(made, features, H100, np) * noise, H100)
    for name, value in made.items():
        assert 0 < found.errors[name] < 0.2
        assert abs(np.log(found.values[name] / value)) < 4 * found.errors[name]


def test_a_line_is_least_squares_of_logarithms():
    """Small errors are squared: the optimum is where NumPy's Gauss-Newton steps come to rest."""
    draw = np.random.default_rng(2)
    x = draw.uniform(1, 50, 60)
    times = (2.0 + x / 5.0) * np.exp(draw.normal(0, 0.02, 60))
    found = fit(Line(), {"x": x}, times, H100)
    theta = np.log([1.0, 1.0])
    for _ in range(100):
        a, b = np.exp(theta)
        made = a + x / b
        slopes = np.stack([a / made, -x / b / made], axis=1)
        theta = theta + 0.5 * np.linalg.lstsq(slopes, np.log(times / made))[0]
    assert [found.values["a"], found.values["b"]] == pytest.approx(np.exp(theta).tolist(), rel=1e-5)
    # White 1980: (J'J)^-1 J' diag(e^2) J (J'J)^-1.
    inverse, residuals = np.linalg.inv(slopes.T @ slopes), np.log(times / made)
    assert np.abs(residuals).max() < HUBER
    sandwich = inverse @ (slopes.T * residuals**2) @ slopes @ inverse
    assert [found.errors["a"], found.errors["b"]] == pytest.approx(np.sqrt(np.diag(sandwich)).tolist(), rel=1e-3)


def test_outliers_weigh_linearly():
    """A tenth of the times doubled would move the mean of logarithms by 7 %; cut off at 10 %, by 1.1 %."""
    x = np.linspace(1, 50, 60)
    times = 2.0 + x / 5.0
    times[::10] *= 2
    found = fit(Line(), {"x": x}, times, H100)
    assert found.values["a"] + 25 / found.values["b"] == pytest.approx(7.0, rel=0.015)


@pytest.mark.slow
def test_points_of_one_group_err_together():
    """Every point of a group written down nine times tells nothing more."""
    draw = np.random.default_rng(3)
    x = draw.uniform(1, 50, 60)
    times = (2.0 + x / 5.0) * np.exp(draw.normal(0, 0.03, 60))
    once = fit(Line(), {"x": x}, times, H100)
    often = fit(Line(), {"x": np.repeat(x, 9)}, np.repeat(times, 9), H100, groups=np.repeat(np.arange(60), 9).tolist())
    alone = fit(Line(), {"x": np.repeat(x, 9)}, np.repeat(times, 9), H100)
    assert often.errors == pytest.approx(once.errors, rel=1e-3)
    assert alone.errors["a"] == pytest.approx(once.errors["a"] / 3, rel=1e-3)


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros(60), "b can't be told from these points, which don't depend on it; measure large x"),
        (np.full(60, 7.0), "a and b can't be told apart from these points; measure small x, or large x"),
    ],
)
def test_what_the_data_can_not_tell_is_refused(x: np.ndarray, says: str):
    with pytest.raises(UserError, match=says):
        fit(Line(), {"x": x}, 2.0 + x / 5.0, H100)


def test_matmuls_of_few_rows_tell_no_peak():
    draw = np.random.default_rng(4)
    n, k = (2.0 ** draw.integers(10, 15, 300) for _ in range(2))
    features = {"m": np.ones(300), "n": n, "k": k}
    made = {"launch": 3e-6, "bandwidth": 0.8, "peak": 0.7, "core rate": 80e9, "wave": 0.7e-6, "merge": 2e-6}
    with pytest.raises(UserError, match=r"gemm: peak .*measure many rows"):
        fit(Gemm(), features, Gemm().seconds(made, features, H100, np), H100)


def test_a_parameter_that_is_hardly_known_is_refused():
    """Its slope is at most 0.06: a standard error of about 0.09 / (0.02 sqrt 60) = 0.6, above a half."""
    x = np.linspace(0.01, 0.3, 60)
    times = (2.0 + x / 5.0) * np.exp(np.random.default_rng(0).normal(0, 0.09, 60))
    with pytest.raises(UserError, match=r"line: b (is known to a factor of|can.t be told)"):
        fit(Line(), {"x": x}, times, H100)


@dataclasses.dataclass(frozen=True)
class Ramp(Line):
    """b x and a cost that there may not be."""

    specs: ClassVar[tuple[Spec, ...]] = (Spec("a", "s", 0.5, "at 0", "small x", nothing=True), Line.specs[1])


@pytest.mark.slow
def test_a_cost_that_there_is_not_is_0():
    """Times are proportional to x, but for 3 %: what a fit finds at 0 is chance, and the rest is fitted without it."""
    x = np.linspace(1, 50, 60)
    times = x / 5.0 * np.exp(np.random.default_rng(0).normal(0, 0.03, 60))
    found = fit(Ramp(), {"x": x}, times, H100)
    assert (found.values["a"], found.errors["a"]) == (0.0, 0.0)
    assert found.values["b"] == pytest.approx(5.0, rel=0.02)
    there = fit(Ramp(), {"x": x}, 2.0 + times, H100)
    assert there.values["a"] == pytest.approx(2.0, rel=0.1) and there.errors["a"] > 0


@pytest.mark.parametrize(
    ("x", "times", "says"),
    [([1.0, 2.0], [1.0, 2.0], "2 points can't tell 2 parameters"), ([1.0, 2.0, 3.0], [1.0, 0.0, 2.0], "not above 0 s")],
)
def test_bad_data(x: list[float], times: list[float], says: str):
    with pytest.raises(UserError, match=says):
        fit(Line(), {"x": np.array(x)}, np.array(times), H100)


def test_held_out_points_are_never_fitted():
    """One group follows another law; predicted by the others alone it is off by its factor, and they are exact but for its own fold."""
    x = np.tile(np.arange(1.0, 16.0), 4)
    group = np.repeat(np.arange(4), 15)
    times = (2.0 + x / 5.0) * np.where(group == 3, 3.0, 1.0)
    held = hold_out(Line(), {"x": x}, times, H100, "group", group.tolist(), folds=4)
    assert held.predicted[group == 3] == pytest.approx(2.0 + x[:15] / 5.0, rel=1e-2)
    assert held.errors(group == 3).median == pytest.approx(2 / 3, rel=1e-2)
    assert held.errors().groups == 4 and held.errors(group < 3).points == 45


def test_one_group_can_not_be_held_out():
    with pytest.raises(UserError, match="one batch alone"):
        hold_out(Line(), {"x": np.arange(1.0, 5.0)}, np.arange(1.0, 5.0), H100, "batch", [1, 1, 1, 1])
