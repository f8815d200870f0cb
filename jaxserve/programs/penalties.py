"""Penalties on tokens that were there before: repetition, presence and frequency, each row by its own settings and its own tokens.

What a row's tokens are, the host says at every step: nothing is kept on the device, so a row that was preempted, moved to another
program or restored after a restart is counted like any other, and a place in a batch belongs to nobody. A token is counted for
where it stands, below `start` or among the live ones of the step; padding has no such place.

In a program with penalties a step takes 4 B of tokens for each row and place of the history from the host, adds each of them to a
count (some tens of nanoseconds on a CPU), and holds counts of 8 B for each row and word of the vocabulary; where no row of the
batch is penalised only the tokens are handed over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from models.segment import Array, Segment


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Penalties:
    """The penalties of all rows of a segment and the tokens that they look at."""

    repetition: Array  # f32 [rows], 1 for none
    presence: Array  # f32 [rows], 0 for none
    frequency: Array  # f32 [rows], 0 for none
    prompt: Array  # i32 [rows]: tokens of the prompt; those after them are the answer
    history: Array  # i32 [rows, width]: the row's tokens by position; only those below the segment's `start` are looked at

    @classmethod
    def blank(cls, rows: int, width: int) -> Penalties:
        """Host arrays of rows without penalties, with room for `width` tokens."""
        zeros = np.zeros(rows, np.float32)
        return cls(np.ones(rows, np.float32), zeros, zeros.copy(), np.zeros(rows, np.int32), np.zeros((rows, width), np.int32))

    def put(self, row: int, params: SamplingParams, tokens: Sequence[int] | np.ndarray, prompt: int) -> None:
        """Fill in a row of host arrays; a row without penalties may be left blank.

        Args:
          tokens: at least all that stand before the segment's `start`. So a step can be dispatched while the host does not know yet
            what the step before drew, if that is fed to it on the device.
          prompt: how many of the row's tokens are its prompt.

        Raises:
          UserError: more tokens than the program has room for.
        """
        if len(tokens) > self.history.shape[1]:
            raise UserError(
                f"a penalised row has {len(tokens)} tokens and the program can count {self.history.shape[1]}; "
                "compile it with a longer history"
            )
        self.repetition[row], self.presence[row] = params.repetition_penalty, params.presence_penalty
        self.frequency[row], self.prompt[row] = params.frequency_penalty, prompt
        self.history[row, : len(tokens)] = tokens


def penalised(logits: jax.Array, penalties: Penalties, segment: Segment, *, every_token: bool) -> jax.Array:
    """Logits after penalties. A row without any keeps its own.

    Args:
      logits: f32 [rows * sampled, vocab], after the last live token of each row or, with `every_token`, after each of them.
      segment: where the rows stand; the tokens of the step count like those before it, at each place those up to there.
    """
    p = penalties
    wanted = (p.repetition != 1) | (p.presence != 0) | (p.frequency != 0)

    def apply() -> jax.Array:
        seen = counts(penalties, segment, logits.shape[1], every_token=every_token)
        repetition, presence, frequency = (each[:, None, None] for each in (p.repetition, p.presence, p.frequency))
        each = logits.reshape(segment.rows, -1, logits.shape[1])
        repeated = jnp.where(each > 0, each / repetition, each * repetition)
        drawn = seen[:, :, 1]
        each = jnp.where(seen.any(axis=2), repeated, each) - frequency * drawn - presence * (drawn > 0)
        return each.reshape(logits.shape)

    return jax.lax.cond(wanted.any(), apply, lambda: logits)


def counts(penalties: Penalties, segment: Segment, vocab: int, *, every_token: bool) -> jax.Array:
    """i32 [rows, sampled, 2, vocab]: how often each token stands in the row's prompt [0] and in its answer [1], so far."""
    rows, width = penalties.history.shape
    row, prompt = jnp.arange(rows), penalties.prompt[:, None]
    place = jnp.arange(width)
    before = jnp.zeros((rows, 2, vocab), jnp.int32).at[row[:, None], (place >= prompt).astype(jnp.int32), penalties.history]
    base = before.add((place < segment.start[:, None]).astype(jnp.int32), mode="drop")
    sampled = segment.query if every_token else 1
    sees = jnp.tri(segment.query, dtype=bool).T if every_token else jnp.ones((segment.query, 1), bool)  # [query, sampled]
    part = (segment.positions() >= prompt).astype(jnp.int32)[:, :, None]
    here = jnp.broadcast_to(base[:, None], (rows, sampled, 2, vocab)).at[
        row[:, None, None], jnp.arange(sampled), part, segment.tokens[:, :, None]
    ]
    return here.add((segment.live()[:, :, None] & sees).astype(jnp.int32), mode="drop")
