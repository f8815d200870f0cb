"""Fits a form to measured times: gradient descent with Optax on log error, standard errors, and a refusal of what data can't tell.

Errors count by their logarithm, so that 10 % of a microsecond weighs as much as 10 % of a second, and large ones linearly (Huber 1964),
for no form is right everywhere. Standard errors come from the Gauss-Newton Hessian J'J of the logarithms, with the errors of one group
(one shape, one batch) taken to go together (Liang and Zeger 1986): a thousand times of one shape tell less than of a thousand shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from costmodel.calibration.device import Device
from costmodel.calibration.form import Features, Form, Parameter, Spec, Values
from models.errors import UserError

HUBER = 0.1  # of the logarithm: errors above 10 % count linearly
STEPS, SETTLED = 200, 1e-6  # iterations at most; norm of the gradient at which nothing more is to be won
LOOSE = 0.5  # standard error of a logarithm above which a parameter is as good as unknown
SAME = 1e-5  # relative singular value of J below which parameters can't be told apart

Theta: TypeAlias = Any  # f64 [parameters], logarithms


class Fitted(NamedTuple):
    """A fit.

    Attributes:
      values: of the parameters, by name.
      errors: standard errors of their logarithms, by name.
    """

    values: dict[str, float]
    errors: dict[str, float]

    def parameters(self, form: Form) -> tuple[Parameter, ...]:
        """With their meaning."""
        return tuple([Parameter(s.name, self.values[s.name], self.errors[s.name], s.unit, s.meaning) for s in form.specs])


def fit(
    form: Form,
    features: Features,
    measured: Any,
    device: Device,
    *,
    groups: Sequence[Any] | None = None,
    used: Any = None,
    start: Values | None = None,
    lenient: bool = False,
) -> Fitted:
    """Fit all parameters of a form.

    Args:
      features: of the points, each [points].
      measured: s [points].
      device: what the times are of.
      groups: [points], what goes together: points of one group may err alike. None: each point by itself.
      used: bool [points], which to fit; None for all.
      start: values to begin with; None for those of the specs.
      lenient: of a fit that only predicts held-out points: a parameter may be known badly, and a cost that can't be told from others is 0.

    Raises:
      UserError: too few points, a time that is none, or a parameter that they can't tell; the message says what would.
    """
    columns, seconds = _checked(form, features, measured)
    chosen = np.ones(len(seconds), bool) if used is None else np.asarray(used, bool)
    if chosen.sum() <= len(form.specs):
        raise UserError(f"{form.name}: {chosen.sum()} points can't tell {len(form.specs)} parameters; measure more")
    labels = (np.arange(len(seconds)) if groups is None else _numbered(groups))[chosen]
    there = np.ones(len(form.specs))
    while True:
        with jax.enable_x64(True):
            begin = jnp.log(jnp.asarray([start.get(s.name) or s.start if start else s.start for s in form.specs], float))
            theta = _descend(form, device, columns, jnp.asarray(seconds), jnp.asarray(chosen, float), begin, there)
            slopes = np.asarray(_slopes(form, device, columns, theta, there))[chosen]
            residuals = np.log(seconds) - np.asarray(_logarithm(form, device, columns, theta, there))
        if not np.isfinite(np.asarray(theta)).all():
            raise RuntimeError(f"the fit of a {form.name} ran away; its form gives a time that is none for some point")
        kept = np.flatnonzero(there)
        errors, doubt = standard_errors([form.specs[i] for i in kept], slopes[:, kept], residuals[chosen], labels)
        if doubt is None or (lenient and doubt.loose and not doubt.spec.nothing):
            break
        if not doubt.spec.nothing or (doubt.mixed and not lenient):
            raise UserError(f"{form.name}: {doubt.why}")
        there[[s.name for s in form.specs].index(doubt.spec.name)] = 0.0
    values = np.exp(theta) * there
    every = np.zeros(len(form.specs))
    every[kept] = errors
    names = [spec.name for spec in form.specs]
    return Fitted(dict(zip(names, values.tolist(), strict=True)), dict(zip(names, every.tolist(), strict=True)))


class Doubt(NamedTuple):
    """A parameter that points can't tell.

    Attributes:
      why: for the user, with what would have to be measured.
      loose: it is known, but badly. mixed: only together with another one.
    """

    spec: Spec
    why: str
    loose: bool = False
    mixed: bool = False


def standard_errors(
    specs: Sequence[Spec], slopes: np.ndarray, residuals: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, Doubt | None]:
    """(those of the logarithms of parameters f64 [parameters], a parameter that can't be told).

    Args:
      slopes: J, f64 [points, parameters]: d log(seconds) / d log(parameter).
      residuals: log(measured / predicted), f64 [points].
      groups: i64 [points].
    """
    unknown = np.full(len(specs), np.inf)
    scale = np.sqrt((slopes**2).mean(axis=0))
    for spec, size in zip(specs, scale, strict=True):
        if size < SAME:
            return unknown, Doubt(
                spec, f"{spec.name} can't be told from these points, which don't depend on it; measure {spec.needs}"
            )
    _, singular, directions = np.linalg.svd(slopes / scale, full_matrices=False)
    if singular[-1] < SAME * singular[0]:
        first, second = (specs[i] for i in sorted(np.argsort(-np.abs(directions[-1]))[:2].tolist()))
        why = f"{first.name} and {second.name} can't be told apart from these points; measure {first.needs}, or {second.needs}"
        return unknown, Doubt(second if second.nothing else first, why, mixed=True)
    # Huber's estimator: what a point pulls is its residual, cut off; and only those that are not cut off resist.
    pull, resists = np.clip(residuals, -HUBER, HUBER), (np.abs(residuals) <= HUBER).mean()
    inverse = (directions.T / singular**2) @ directions
    sums = np.zeros((int(groups.max()) + 1, len(specs)))
    np.add.at(sums, groups, slopes / scale * pull[:, None])
    covariance = inverse @ (sums.T @ sums) @ inverse / max(resists, 1e-3) ** 2
    errors = np.sqrt(np.diag(covariance)) / scale
    if errors.max() <= LOOSE:
        return errors, None
    # A cost that may be nothing is given up first: without it the others may be known.
    worst = max(range(len(specs)), key=lambda i: (errors[i] > LOOSE and specs[i].nothing, errors[i]))
    spec, factor = specs[worst], np.exp(min(errors[worst], 20.0))
    why = f"{spec.name} is known to a factor of {factor:.1f} only, from these points; measure {spec.needs}"
    return errors, Doubt(spec, why, loose=True)


def _checked(form: Form, features: Features, measured: Any) -> tuple[dict[str, jax.Array], np.ndarray]:
    """Columns of one length, and times that are some."""
    seconds = np.asarray(measured, float)
    if seconds.ndim != 1 or not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise UserError(f"{form.name}: a measured time is not above 0 s; leave it out")
    with jax.enable_x64(True):
        columns = {name: jnp.broadcast_to(jnp.asarray(column, float), seconds.shape) for name, column in features.items()}
    return columns, seconds


def _numbered(groups: Sequence[Any]) -> np.ndarray:
    """i64 [points]: 0, 1, ... for each group."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups])


def _named(form: Form, theta: Theta, there: Any) -> Values:
    return {spec.name: there[i] * jnp.exp(theta[i]) for i, spec in enumerate(form.specs)}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _logarithm(form: Form, device: Device, columns: Mapping[str, jax.Array], theta: Theta, there: Any) -> jax.Array:
    return jnp.log(form.seconds(_named(form, theta, there), columns, device, jnp))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _slopes(form: Form, device: Device, columns: Mapping[str, jax.Array], theta: Theta, there: Any) -> jax.Array:
    return jax.jacfwd(lambda at: _logarithm(form, device, columns, at, there))(theta)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _descend(
    form: Form,
    device: Device,
    columns: Mapping[str, jax.Array],
    seconds: jax.Array,
    weights: jax.Array,
    start: Theta,
    there: Any,
) -> Theta:
    """The logarithms of the parameters at which the loss is least, by L-BFGS (Liu and Nocedal 1989)."""
    wanted, solver = jnp.log(seconds), optax.lbfgs()

    def loss(theta: Theta) -> jax.Array:
        errors = _logarithm(form, device, columns, theta, there) - wanted
        return (weights * optax.losses.huber_loss(errors, delta=HUBER)).sum() / weights.sum()

    both = optax.value_and_grad_from_state(loss)

    def turn(carry: tuple[Theta, Any]) -> tuple[Theta, Any]:
        theta, state = carry
        value, slope = both(theta, state=state)
        updates, state = solver.update(slope, state, theta, value=value, grad=slope, value_fn=loss)
        return optax.apply_updates(theta, updates), state

    def going(carry: tuple[Theta, Any]) -> jax.Array:
        count, slope = (optax.tree_utils.tree_get(carry[1], name) for name in ("count", "grad"))
        return (count == 0) | ((count < STEPS) & (optax.tree_utils.tree_norm(slope) > SETTLED))

    return jax.lax.while_loop(going, turn, (start, solver.init(start)))[0]
