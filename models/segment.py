"""What one step works on: rows of tokens, where they stand in their sequences, and where their KV lives."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import chex
import jax
import jax.numpy as jnp

Array: TypeAlias = Any  # jax.Array inside a step; np.ndarray where the host packs one, which must cause no work on the device


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Segment:
    """`rows x query` tokens with one page table. Decode is query 1; a prefill chunk is 1 row of many; verifying a draft is query k+1.

    A row whose `count` is 0 is padding: it writes nothing and its output means nothing.
    """

    tokens: Array  # i32 [rows, query]
    start: Array  # i32 [rows]: tokens of the row that are in the cache already, so the position of its first token here
    count: Array  # i32 [rows]: live tokens of the row in this step, 0 to query
    table: Array  # i32 [rows, width]: its pages in order (PagedKV) or its slot (ContiguousKV, width 1)

    @property
    def rows(self) -> int:
        return self.tokens.shape[0]

    @property
    def query(self) -> int:
        return self.tokens.shape[1]

    @property
    def size(self) -> int:
        """Tokens of the segment with padding."""
        return self.tokens.size

    def check(self) -> None:
        """Raises AssertionError for arrays whose shapes or dtypes don't fit each other. Shapes are static: a compiled step asks nothing."""
        chex.assert_rank([self.tokens, self.table], 2)
        chex.assert_shape([self.start, self.count], (self.rows,))
        chex.assert_axis_dimension(self.table, 0, self.rows)
        chex.assert_type([self.tokens, self.start, self.count, self.table], int)

    def positions(self) -> jax.Array:
        """i32 [rows, query]: position of each token in its sequence."""
        return self.start[:, None] + jnp.arange(self.query, dtype=jnp.int32)

    def live(self) -> jax.Array:
        """bool [rows, query]: True where a token is real."""
        return jnp.arange(self.query) < self.count[:, None]
