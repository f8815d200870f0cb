"""Copies of KV on the device, compiled before they are needed: where samples part, and from worker to worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from jaxserve.ladder import powers
from models.kv_copy import copy_units
from models.layers import KV

Pairs = Sequence[tuple[int, int]]  # (from, to) pages or slots


class Mover:
    """Copies whole units.

    Args:
      kv: a pool of the shape of all that are copied; it is only looked at.
      most: units that are copied at once; more go in several programs.
      workers: whether there are several pools to copy between.
    """

    def __init__(self, kv: KV, most: int, *, workers: bool = False):
        sizes = sorted({1, powers(most)[-1]})
        self._units = kv.units
        within = jax.jit(lambda kv, pairs: copy_units(kv, kv, pairs), donate_argnums=0)
        between = jax.jit(copy_units, donate_argnums=1)
        shapes = {size: jax.ShapeDtypeStruct((size, 2), np.int32) for size in sizes}
        self._within = {size: within.lower(kv, shape).compile() for size, shape in shapes.items()}
        self._between = {size: between.lower(kv, kv, shape).compile() for size, shape in shapes.items() if workers}

    @property
    def between(self) -> bool:
        """Whether it can send from one pool to another."""
        return bool(self._between)

    def copy(self, kv: KV, pairs: Pairs) -> KV:
        """The pool with its copies made; all are read before any is written. `kv` is consumed."""
        for part in self._in_order(pairs):
            kv = self._within[len(part)](kv, part)
        return kv

    def send(self, source: KV, target: KV, pairs: Pairs) -> KV:
        """The target with units of the source. `target` is consumed."""
        for part in self._parts(pairs):
            target = self._between[len(part)](source, target, part)
        return target

    def _in_order(self, pairs: Pairs) -> Iterator[np.ndarray]:
        """Parts of which none overwrites what a later one reads."""
        left = list(pairs)
        while len(left) > max(self._within):
            sources = {source for source, _ in left}
            # Where all targets are also sources, as if two units changed places, nothing could go first; pages are never lent so.
            first = [pair for pair in left if pair[1] not in sources][: max(self._within)]
            if not first:
                raise RuntimeError(f"copies in a circle: {left}")
            yield from self._parts(first)
            left = [pair for pair in left if pair not in first]
        yield from self._parts(left)

    def _parts(self, pairs: Pairs) -> Iterator[np.ndarray]:
        most = max(self._within)
        for at in range(0, len(pairs), most):
            here = pairs[at : at + most]
            part = np.full((1 if len(here) == 1 else most, 2), self._units, np.int32)  # padding has no target
            part[:, 0] = 0
            part[: len(here)] = here
            yield part
