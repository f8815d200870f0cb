"""Rows of a step: each with its tokens in the cache and its tokens to compute. And checks of the numbers that describe them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from costmodel.hardware.chip import Quantity
from models.errors import UserError


def numeric(*values: Quantity) -> Any:
    """The library that has the functions for these values: jax.numpy where any is a JAX array, else numpy."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


def real(value: Quantity) -> Quantity:
    """A number or array in floating point: a batch given as int32 would overflow in bytes."""
    return (value if isinstance(value, (int, float, np.ndarray, jax.Array)) else np.asarray(value)) * 1.0


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of one kind. Either `count` rows that are alike, or, with `each`, one row for each entry of the last axis.

    Attributes:
      count: how many rows.
      context: tokens of a row in the cache when the step ends, those of this step included: what its last query attends to.
      query: tokens of a row that the step computes: 1 in decode, k + 1 to verify k drafts, the chunk in prefill.
      each: `context` is [..., rows] and sums are taken over its last axis.
      every: logits are wanted after every token (verification), not after the last of each row alone.
      decoding: few queries meet many cached tokens, so a latent cache is attended to as it is; else keys and values are expanded.
      empty: padded rows, which are multiplied like any other but hold nothing in the cache.
    """

    count: Quantity
    context: Quantity
    query: Quantity
    each: bool = False
    every: bool = False
    decoding: bool = True
    empty: bool = False

    def total(self, value: Quantity) -> Quantity:
        """The sum over rows of a value of each."""
        return (value + 0.0 * self.context).sum(-1) if self.each else self.count * value

    @property
    def tokens(self) -> Quantity:
        return self.total(self.query)

    @property
    def samples(self) -> Quantity:
        """Tokens after which logits are computed."""
        return self.tokens if self.every else self.count

    def cached(self, window: int | None) -> Quantity:
        """Cached tokens of a row that its queries of this step see, in a layer with this window; each is read once."""
        if self.empty:
            return 0.0 * self.context
        xp = numeric(self.context, self.query)
        return self.context if window is None else xp.minimum(self.context, window + self.query - 1.0)

    def pairs(self, window: int | None) -> Quantity:
        """(query, key) pairs of a row in such a layer, causal: the query at position p, from 0, sees min(p + 1, window) keys.

        Written without differences of large squares, which f32 would lose.
        """
        if self.empty:
            return 0.0 * self.context
        before = self.context - self.query
        if window is None:
            return self.query * (before + (self.query + 1.0) / 2.0)
        xp = numeric(self.context, self.query)
        short = xp.clip(window - before, 0.0, self.query)  # queries that see all that came before them
        return short * (before + (short + 1.0) / 2.0) + (self.query - short) * float(window)


def check_quantity(name: str, value: Quantity, *, most: Quantity | None = None, limit: str = "") -> None:
    """Refuse a number, or an array with a number, that is not above 0 or is above `most`. Traced values have none yet and pass.

    Raises:
      UserError: names the first bad value, the limit and, in `limit`, whose limit it is.
    """
    if isinstance(value, jax.core.Tracer) or isinstance(most, jax.core.Tracer):
        return
    values, bounds = np.broadcast_arrays(
        np.asarray(value, np.float64), np.asarray(np.inf if most is None else most, np.float64)
    )
    if not values.size:
        raise UserError(f"{name} is empty; give at least one")
    if (low := values[~(values > 0)]).size:
        raise UserError(f"{name} is {low[0]:g}; it must be above 0")
    if (high := values > bounds).any():
        raise UserError(f"{name} is {values[high][0]:g}; it must be at most {bounds[high][0]:g}{limit}")
