"""What one chip of a layout holds: its part of the batch, of every weight matrix and of the KV cache (Pope et al. 2022, section 3)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from costmodel.arch.architecture import Architecture
from costmodel.parallel.layouts import Layout


class Itemsizes(NamedTuple):
    """Bytes of an element of weights, activations and KV cache. Int8 weights beside bf16 activations: `Itemsizes(weight=1)`."""

    weight: float = 2.0
    activation: float = 2.0
    kv: float = 2.0


BF16 = Itemsizes()


@dataclasses.dataclass(frozen=True)
class Memory:
    """B that one chip must hold at once.

    Attributes:
      weights: at rest, the embedding table and the head among them.
      kv: the cache with the step's context, whole in layers that have a window too.
      activations: the widest moment of a layer: residual, a norm of it whole along E where E is not split, q and the MLP's width.
      gathered: the largest matrix that a weight-gathered layout has fetched; none is kept for the next.
    """

    weights: float
    kv: float
    activations: float
    gathered: float

    @property
    def total(self) -> float:
        return self.weights + self.kv + self.activations + self.gathered


class Matrix(NamedTuple):
    """A weight matrix of every layer between E and `width`, and the parts that the width falls into, in a matmul and at rest."""

    width: int
    used: int
    stored: int


@dataclasses.dataclass(frozen=True)
class Share:
    """One chip's part of a step: of `batch` sequences with `tokens` new tokens each, and `context` in the cache in the end."""

    model: Architecture
    layout: Layout
    batch: int
    tokens: int
    context: float
    items: Itemsizes

    @property
    def rows(self) -> float:
        """Tokens that meet in a matmul: T = B L / data."""
        return self.batch * self.tokens / self.layout.data

    @property
    def inputs(self) -> float:
        """Elements of a token's hidden state that a matmul reads: E / h."""
        return self.model.hidden / self.layout.hidden

    @property
    def sequences(self) -> float:
        """Sequences whose attention is computed, and whose cache is kept, on this chip."""
        return self.batch / (self.layout.data if self.layout.attention == "heads" else self.layout.mesh.chips)

    @property
    def heads(self) -> float:
        """Query heads of each of those sequences."""
        return self.model.heads / (self.layout.hidden * self.layout.width if self.layout.attention == "heads" else 1)

    @property
    def kv_parts(self) -> int:
        """Parts into which the KV heads of a sequence are dealt out: by heads no more than there are heads (figure 4b)."""
        return min(self.model.kv_heads, self.layout.hidden * self.layout.width) if self.layout.attention == "heads" else 1

    @property
    def kv_token_bytes(self) -> float:
        """B of K and V of one token of one layer."""
        return 2 * self.model.kv_heads * self.model.head_dim / self.kv_parts * self.items.kv

    @property
    def queries(self) -> Matrix:
        return self._matrix(self.model.heads * self.model.head_dim)

    @property
    def keys_values(self) -> Matrix:
        """K and V together; a KV head is not cut, so on more chips than heads some hold the same."""
        return self._matrix(2 * self.model.kv_heads * self.model.head_dim, self.model.kv_heads)

    @property
    def gate_up(self) -> Matrix:
        return self._matrix((2 if self.model.gated else 1) * self.model.ffn)

    @property
    def down(self) -> Matrix:
        return self._matrix(self.model.ffn)

    def _matrix(self, width: int, most: int | None = None) -> Matrix:
        used, stored = self.layout.width, self.layout.stored_width
        return Matrix(width, min(used, most or used), min(stored, most or stored))

    def weight_bytes(self, matrix: Matrix) -> float:
        """B of the part of a matrix that a matmul reads, gathered if need be."""
        return self.inputs * matrix.width / matrix.used * self.items.weight

    def gathered_from(self, matrix: Matrix) -> int:
        """Chips whose parts at rest make up the part that a matmul reads: 1 where weights are stationary."""
        return self.layout.stored_hidden * matrix.stored // (self.layout.hidden * matrix.used)

    @property
    def table_bytes(self) -> float:
        """B of the embedding table, or of the head, on this chip: split over E and the vocabulary, and never gathered."""
        return self.model.hidden / self.layout.stored_hidden * self.model.vocab / self.layout.stored_width * self.items.weight

    @property
    def norm_bytes(self) -> float:
        """B of the norms of all layers, which every chip keeps whole."""
        return self.model.parameters["norm"] * self.items.activation

    def memory(self) -> Memory:
        layer = (
            self.queries,
            self.queries,
            self.keys_values,
            self.gate_up,
            self.down,
        )  # the output projection is like the queries'
        at_rest = sum(self.weight_bytes(m) / self.gathered_from(m) for m in layer) * self.model.layers
        tables = (1 if self.model.tied_head else 2) * self.table_bytes
        wide = self.inputs * (1 + 2 / self.layout.width) + (self.gate_up.width + self.queries.width) / self.layout.width
        return Memory(
            weights=at_rest + tables + self.norm_bytes,
            kv=self.sequences * self.context * self.model.layers * self.kv_token_bytes,
            activations=self.rows * wide * self.items.activation,
            gathered=max((self.weight_bytes(m) for m in layer if self.gathered_from(m) > 1), default=0.0),
        )
