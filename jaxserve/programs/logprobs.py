"""Log-probabilities of tokens: of the one that follows and of the likeliest, worked out in the program, so that only they leave it.

They are natural logarithms of the model's own distribution, before penalties, biases, temperature and filters have changed it, so
that what was drawn against all odds still has a finite one, and the same text has the same ones however it was drawn.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models.segment import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Logprobs:
    """Of each place of a segment's rows: f32 [rows, places] and, for the n likeliest tokens there, likeliest first, [rows, places, n].

    The lowest id comes first among equals.
    """

    following: Array  # f32 [rows, places]: of the token that follows the place
    top: Array  # f32 [rows, places, n]
    top_tokens: Array  # i32 [rows, places, n]

    def on_host(self) -> Logprobs:
        """The same as numpy arrays."""
        return jax.tree.map(np.asarray, self)


class TokenLogprob(NamedTuple):
    """One token in plain data. A logarithm is finite, or None where the model gave none (a probability of 0, or NaN)."""

    token: int
    logprob: float | None
    top: tuple[tuple[int, float | None], ...]  # (token, logprob), likeliest first


def logprobs(logits: jax.Array, tokens: jax.Array, top: int) -> Logprobs:
    """Look tokens up in the distributions of some logits.

    Args:
      logits: f32 [rows * places, vocab].
      tokens: i32 [rows, places], which token followed each.
      top: how many of the likeliest to name, at most the vocabulary.
    """
    peak = logits.max(axis=1, keepdims=True)
    total = jnp.log(jnp.exp(logits - peak).sum(axis=1, keepdims=True))  # added to a large peak, it would lose its digits
    found = jnp.take_along_axis(logits, tokens.reshape(-1, 1), axis=1)
    values, ids = jax.lax.top_k(logits, top) if top else (logits[:, :0], jnp.zeros((logits.shape[0], 0), jnp.int32))
    following, likeliest = (each - peak - total for each in (found, values))
    shape = (*tokens.shape, top)
    return Logprobs(following.reshape(tokens.shape), likeliest.reshape(shape), ids.reshape(shape))


def plain(found: Logprobs, row: int, place: int, token: int, top: int) -> TokenLogprob:
    """What a program on the host says of `token`, which followed a place, with the `top` likeliest there."""
    ids, values = found.top_tokens[row, place, :top].tolist(), found.top[row, place, :top].tolist()
    likeliest = tuple((other, _finite(value)) for other, value in zip(ids, values, strict=True))
    return TokenLogprob(token, _finite(float(found.following[row, place])), likeliest)


class PromptLogprobs:
    """Gathers those of one prompt, chunk by chunk. Chunks may come again, as after a preemption.

    A token whose logits are not computed, because a prefix cache had its KV, has none: a request that asks for them is to be run
    from its first token.
    """

    def __init__(self, prompt: Sequence[int], top: int):
        self.prompt, self.top = list(prompt), top
        self.entries: list[TokenLogprob | None] = [None] * len(
            self.prompt
        )  # of each token; the first has none, for nothing is before it

    def following(self, start: int, count: int) -> list[int]:
        """The tokens that follow each of `count` ones from position `start` on, as far as they are prompt: a row of `Work.following`."""
        return self.prompt[start + 1 : start + 1 + count]

    def add(self, found: Logprobs, row: int, start: int, count: int) -> None:
        """Take in what a step said, on the host, of a row that ran `count` tokens from position `start`."""
        for place, token in enumerate(self.following(start, count)):
            self.entries[start + place + 1] = plain(found, row, place, token, self.top)

    @property
    def complete(self) -> bool:
        return None not in self.entries[1:]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
