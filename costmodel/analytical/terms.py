"""The cost of a step as a table of named terms, and what follows from their totals: intensity, roofline time, bound.

Figures may be numbers, NumPy arrays or JAX arrays. All are of one chip: under tensor parallelism each of the others does the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from costmodel.hardware.chip import Chip, Quantity
from models.errors import UserError

BOUNDS = ("memory", "compute", "link")
_STATIC = {"static": True}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Term:
    """One line of the table.

    Attributes:
      name: what it is; several terms may share a component.
      component: in the vocabulary that all witnesses share: embed, norm, qkv, rope, kv_write, kv_read, scores, softmax, values, out,
        gate_up, down, router, experts, head, sample, collectives; "all" in the nominal model, which knows no components.
      kind: what its bytes are: weights, kv, activations, or none.
      flops: FLOP, multiplications and additions counted apart.
      bytes: B between memory and chip.
      link_bytes: B that a chip sends to others.
      compute: the dtype whose peak its FLOPs are priced at.
      formula, source: one line each.
      padding: work for rows and tokens that nobody asked for.
    """

    name: str = dataclasses.field(metadata=_STATIC)
    component: str = dataclasses.field(metadata=_STATIC)
    kind: str = dataclasses.field(metadata=_STATIC)
    flops: Quantity
    bytes: Quantity
    link_bytes: Quantity
    compute: str = dataclasses.field(metadata=_STATIC)
    formula: str = dataclasses.field(metadata=_STATIC)
    source: str = dataclasses.field(metadata=_STATIC)
    padding: bool = dataclasses.field(default=False, metadata=_STATIC)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepCost:
    """What one step must move and compute. A JAX pytree.

    Attributes:
      terms: the table; totals are its sums.
      tokens: live tokens that the step computes: the rows of its matmuls.
      sequences: live rows of the batch.
      chip: what times are for where a method is given no other.
    """

    terms: tuple[Term, ...]
    tokens: Quantity
    sequences: Quantity
    chip: Chip | None = None

    def _sum(self, field: str, **where: Any) -> Quantity:
        """Of the terms whose attributes have these values."""
        return sum(getattr(t, field) for t in self.terms if all(getattr(t, name) == value for name, value in where.items()))

    @property
    def flops(self) -> Quantity:
        return self._sum("flops")

    @property
    def bytes(self) -> Quantity:
        return self._sum("bytes")

    @property
    def link_bytes(self) -> Quantity:
        return self._sum("link_bytes")

    @property
    def weight_bytes(self) -> Quantity:
        """B of weights read, the rows of the embedding included."""
        return self._sum("bytes", kind="weights")

    @property
    def kv_bytes(self) -> Quantity:
        """B of cache read and written."""
        return self._sum("bytes", kind="kv")

    @property
    def activation_bytes(self) -> Quantity:
        return self._sum("bytes", kind="activations")

    @property
    def waste(self) -> Quantity:
        """The share of the FLOPs that goes to padding: 0 where the step was given no bucket."""
        return self._sum("flops", padding=True) / self.flops

    @property
    def intensity(self) -> Quantity:
        """FLOP per byte moved."""
        return self.flops / self.bytes

    @property
    def intensity_limit(self) -> Quantity:
        """FLOP/B that the intensity tends to as rows like these are added without end: 119.2 for the nominal 8B model at 1024."""
        return self.flops / (self.bytes - self.weight_bytes)

    @property
    def weight_bytes_per_row(self) -> Quantity:
        """B of weights that each token of the step pays for."""
        return self.weight_bytes / self.tokens

    def memory_seconds(self, chip: Chip | None = None) -> Quantity:
        return self.bytes / self._on(chip).bandwidth

    def compute_seconds(self, chip: Chip | None = None) -> Quantity:
        """Seconds at the chip's dense peaks, each term at that of its dtype.

        Work that is no matmul is priced at the same peak, far above what a chip's vector units reach: it is a few FLOP an element,
        and what moves the elements bounds it.

        Raises:
          UserError: a dtype that the chip has no peak for.
        """
        peaks, dtypes = self._on(chip), dict.fromkeys(term.compute for term in self.terms)
        return sum(self._sum("flops", compute=dtype) / peaks.peak(dtype) for dtype in dtypes)

    def link_seconds(self, chip: Chip | None = None) -> Quantity:
        """Seconds to send what this chip sends, all its links busy at once; 0 for one chip alone.

        Raises:
          UserError: there is something to send and the chip has no figure for its links.
        """
        if not any(term.component == "collectives" for term in self.terms):
            return 0.0
        links = self._on(chip)
        if links.link_bandwidth is None:
            raise UserError(f"chip {links.name}: no link bandwidth is known, which several chips need; pick another chip")
        return self.link_bytes / links.link_bandwidth

    def seconds(self, chip: Chip | None = None) -> Quantity:
        """The longest of the three: memory, arithmetic and links are taken to overlap perfectly (Williams et al. 2009)."""
        times = self._times(chip)
        xp = jnp if any(isinstance(time, jax.Array) for time in times) else np
        return xp.maximum(xp.maximum(times[0], times[1]), times[2])

    def bound(self, chip: Chip | None = None) -> Any:
        """Which of `BOUNDS` is the longest: a word, or an array of words for arrays. Not for traced values, which have no words."""
        which = np.argmax(np.broadcast_arrays(*map(np.asarray, self._times(chip))), axis=0)
        words = np.array(BOUNDS)[which]
        return str(words) if words.ndim == 0 else words

    def tokens_per_second(self, chip: Chip | None = None) -> Quantity:
        """Live tokens computed a second: in decode, tokens generated; in verification, drafts and all."""
        return self.tokens / self.seconds(chip)

    def by_component(self) -> dict[str, tuple[Quantity, Quantity, Quantity]]:
        """FLOP, B and link B of each component, in the order of the table."""
        names = dict.fromkeys(term.component for term in self.terms)
        flops, moved, sent = ({name: self._sum(field, component=name) for name in names} for field in _FIGURES)
        return {name: (flops[name], moved[name], sent[name]) for name in names}

    def table(self) -> list[dict[str, Any]]:
        """The terms as rows of a table: a dict a term, its keys those of `Term`."""
        return [{field.name: getattr(term, field.name) for field in dataclasses.fields(Term)} for term in self.terms]

    def _times(self, chip: Chip | None) -> tuple[Quantity, Quantity, Quantity]:
        return self.memory_seconds(chip), self.compute_seconds(chip), self.link_seconds(chip)

    def _on(self, chip: Chip | None) -> Chip:
        found = chip or self.chip
        if found is None:
            raise UserError("step cost: no chip was given, so there are bytes but no seconds; pass chip=")
        return found


_FIGURES = ("flops", "bytes", "link_bytes")


def padding_terms(live: Iterable[Term], padded: Iterable[Term]) -> tuple[Term, ...]:
    """What the same terms cost more with padding, as terms of their own; those that cost the same are left out."""
    found = []
    for less, more in zip(live, padded, strict=True):
        figures = {field: getattr(more, field) - getattr(less, field) for field in _FIGURES}
        if not all(isinstance(value, (int, float)) and value == 0 for value in figures.values()):
            found.append(dataclasses.replace(more, name=f"{more.name}, padding", padding=True, **figures))
    return tuple(found)
