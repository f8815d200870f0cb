"""How well a form predicts what its fit never saw: points are left out fold by fold, by shape, by batch or by context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from costmodel.calibration.device import Device
from costmodel.calibration.fit import Fitted, fit
from costmodel.calibration.form import Features, Form, Values
from models.errors import UserError

FOLDS = 5


class Errors(NamedTuple):
    """|predicted / measured - 1| on points that were held out, of a form and of the bare roofline, as shares.

    Attributes:
      by: what was held out together.
      points, groups: how many.
    """

    by: str
    points: int
    groups: int
    median: float
    p90: float
    roofline_median: float
    roofline_p90: float


class HeldOut(NamedTuple):
    """Predictions of every point by a fit that had not seen its group.

    Attributes:
      by: what was held out together.
      predicted, roofline, measured: s [points].
      groups: [points].
    """

    by: str
    predicted: np.ndarray
    roofline: np.ndarray
    measured: np.ndarray
    groups: np.ndarray

    @property
    def logs(self) -> np.ndarray:
        """log(measured / predicted), f64 [points]."""
        return np.log(self.measured / self.predicted)

    def errors(self, where: Any = None) -> Errors:
        """Of all points, or of those where a bool array says so."""
        chosen = np.ones(len(self.measured), bool) if where is None else np.asarray(where, bool)
        fitted, bare = (np.abs(each[chosen] / self.measured[chosen] - 1) for each in (self.predicted, self.roofline))
        figures = [float(np.quantile(each, q)) for each in (fitted, bare) for q in (0.5, 0.9)]
        return Errors(self.by, int(chosen.sum()), len(np.unique(self.groups[chosen])), *figures)


def hold_out(
    form: Form,
    features: Features,
    measured: Any,
    device: Device,
    by: str,
    groups: Any,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    used: Any = None,
    start: Values | None = None,
) -> HeldOut:
    """Predict every point from the folds that don't have its group.

    Args:
      features, measured, device: as of `fit`.
      by: what a group is, for people.
      groups: [points], of any values; points of one group are held out together.
      used: bool [points]; the others are predicted, but never fitted.
      start: where each fit begins, to be quick.
      folds: the groups are dealt out at random to so many, or each is one of its own where there are fewer.

    Raises:
      UserError: as `fit`; fewer than two groups.
    """
    labels, numbers = np.unique(np.asarray(groups), return_inverse=True, axis=0)
    if len(labels) < 2:
        raise UserError(f"{form.name}: one {by} alone can't be held out by {by}; measure several")
    order = np.random.default_rng(seed).permutation(len(labels))
    fold = (order % min(folds, len(labels)))[numbers.ravel()]
    seconds, chosen = np.asarray(measured, float), True if used is None else np.asarray(used, bool)
    predicted = np.empty_like(seconds)
    for out in range(int(fold.max()) + 1):
        here = fold == out
        found = fit(form, features, seconds, device, used=chosen & ~here, start=start, lenient=True)
        predicted[here] = predict(form, found, {name: _part(column, here) for name, column in features.items()}, device)
    return HeldOut(by, predicted, np.broadcast_to(form.roofline(features, device), seconds.shape), seconds, numbers.ravel())


def predict(form: Form, fitted: Fitted, features: Mapping[str, Any], device: Device) -> np.ndarray:
    """s [points]."""
    return np.asarray(form.seconds(fitted.values, features, device, np))


def _part(column: Any, here: np.ndarray) -> Any:
    return np.asarray(column)[here] if np.ndim(column) else column
