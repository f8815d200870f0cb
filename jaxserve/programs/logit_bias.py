"""Biases on single tokens: added to their logits, forbidding them, or leaving nothing else; some only up to a position.

One list of entries a row serves a request's `logit_bias` and its `min_tokens`, which forbids what would end the answer too early.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.sampling_params import FORBID, ONLY, SamplingParams
from models.errors import UserError
from models.segment import Array

NEVER = 2**31 - 1  # no token has this id, no position is beyond it


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LogitBias:
    """The entries of all rows of a segment, [rows, entries]."""

    token: Array  # i32, NEVER where there is no entry
    value: Array  # f32: what is added; -inf forbids the token, +inf forbids all tokens of the row that do not have it
    until: Array  # i32: holds for tokens that are drawn at positions below this

    @classmethod
    def blank(cls, rows: int, entries: int) -> LogitBias:
        """Host arrays without an entry."""
        shape = (rows, entries)
        return cls(np.full(shape, NEVER, np.int32), np.zeros(shape, np.float32), np.full(shape, NEVER, np.int32))

    def put(self, row: int, params: SamplingParams, prompt: int, stops: Iterable[int]) -> None:
        """Fill in a row of host arrays.

        Args:
          prompt: tokens of the prompt.
          stops: the tokens that end the answer, `params.stop_set(eos)`.

        Raises:
          UserError: more entries than the program has room for.
        """
        given = entries(params, prompt, stops)
        if len(given) > self.token.shape[1]:
            raise UserError(
                f"a row has {len(given)} biased or held back tokens and the program takes {self.token.shape[1]}; "
                "compile it with more, or bias fewer"
            )
        for i, (token, value, until) in enumerate(given):
            self.token[row, i], self.value[row, i], self.until[row, i] = token, value, until


def entries(params: SamplingParams, prompt: int, stops: Iterable[int]) -> list[tuple[int, float, int]]:
    """(token, value, until) of each entry that a request needs; see `LogitBias` and `LogitBias.put`."""
    special = {FORBID: -np.inf, ONLY: np.inf}
    found = [(token, special.get(value, value), NEVER) for token, value in params.biases]
    if params.min_tokens:
        until = min(prompt + params.min_tokens, NEVER)
        found += [(token, -np.inf, until) for token in sorted(stops)]
    return found


def biased(logits: jax.Array, biases: LogitBias, position: jax.Array) -> jax.Array:
    """Logits with their biases; a forbidden token has -inf. A row without entries keeps its own.

    Args:
      logits: f32 [rows, vocab].
      biases: [rows, entries].
      position: i32 [rows], where the drawn token will stand.
    """
    holds = (biases.token != NEVER) & (position[:, None] < biases.until)

    def apply() -> jax.Array:
        only = holds & (biases.value == jnp.inf)
        at = (jnp.arange(logits.shape[0])[:, None], biases.token)
        shift = jnp.broadcast_to(jnp.where(only.any(axis=1), -jnp.inf, 0.0)[:, None], logits.shape)
        shift = shift.at[at].max(jnp.where(only, 0.0, -jnp.inf), mode="drop")
        return logits + shift.at[at].add(jnp.where(holds & ~only, biases.value, 0.0), mode="drop")

    return jax.lax.cond(holds.any(), apply, lambda: logits)
