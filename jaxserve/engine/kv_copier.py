"""Copies of KV on the device, compiled before they are needed: where samples part, and from worker to worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from jaxserve.programs.buckets import powers
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.executable import executable
from models.kv_copy import copy_units
from models.layers import KV

Pairs = Sequence[tuple[int, int]]  # (from, to) pages or slots


class KVCopier:
    """Copies whole units.

    Args:
      kv: a pool of the shape of all that are copied; it is only looked at.
      most: units that are copied at once; more go in several programs.
      workers: whether there are several pools to copy between.
      cache: where compiled copies are kept for the next start.
    """

    def __init__(self, kv: KV, most: int, *, workers: bool = False, cache: CompileCache | None = None):
        sizes = sorted({1, powers(most)[-1]})
        self._units = kv.units
        shapes = {size: jax.ShapeDtypeStruct((size, 2), np.int32) for size in sizes}
        self._within = {
            size: executable(_within, (kv, shape), "copies within a pool", donate=0, cache=cache).compiled
            for size, shape in shapes.items()
        }
        self._between = {
            size: executable(copy_units, (kv, kv, shape), "copies between pools", donate=1, cache=cache).compiled
            for size, shape in shapes.items()
            if workers
        }

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


def _within(kv: KV, pairs: jax.Array) -> KV:
    return copy_units(kv, kv, pairs)
