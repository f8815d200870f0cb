"""What an engine compiles before it serves. Several engines of one shape may share it: a second one then starts at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import jax
import numpy as np

from jaxserve.engine.model import Model
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets, powers
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.executable import executable
from jaxserve.programs.features import Features
from jaxserve.programs.program_set import Program, Programs, compile_programs
from models.errors import UserError
from models.kv_copy import copy_units
from models.layers import KV


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledPrograms:
    """Programs and copies, and what they were compiled for. It holds no KV and no request."""

    model: Model
    pool: KVLayout
    ladder: Buckets
    features: Features
    programs: Programs
    mover: KVCopier

    @classmethod
    def of(
        cls,
        model: Model,
        pool: KVLayout,
        ladder: Buckets,
        features: Features,
        kv: KV,
        *,
        workers: int = 1,
        compiled: Callable[[Program], None] = lambda program: None,
        cache: CompileCache | None = None,
    ) -> Self:
        """Compile all of it.

        Args:
          kv: a pool like the one that is described; it is only looked at.
          workers: with several, KV can be sent from one to another.
          compiled: called with each program that is ready.
          cache: where all of it is kept for the next start.
        """
        step = dataclasses.replace(model.step, features=features)
        programs = compile_programs(step, model.serving, kv, ladder.buckets(), done=compiled, cache=cache)
        mover = KVCopier(kv, ladder.batches[-1], workers=workers > 1, cache=cache)
        if cache:
            cache.tell()
        return cls(model, pool, ladder, features, programs, mover)

    def check(self, model: Model, pool: KVLayout, ladder: Buckets, features: Features, workers: int) -> None:
        """Raises UserError where an engine of these parts can't serve with it."""
        if model is not self.model:
            raise UserError(f"what was prepared is for another model, {self.model.name}; prepare {model.name} by itself")
        memory = (pool.units, pool.unit, pool.dtype, pool.kind)  # who looks for known prefixes is no matter of programs
        for name, wanted, found in (
            ("pool", memory, (self.pool.units, self.pool.unit, self.pool.dtype, self.pool.kind)),
            ("ladder", ladder, self.ladder),
            ("features", features, self.features),
        ):
            if wanted != found:
                raise UserError(f"what was prepared is for a {name} of {found}, and this engine has {wanted}; make them equal")
        if workers > 1 and not self.mover.between:
            raise UserError(
                f"what was prepared sends no KV between workers, and this engine has {workers}; prepare it for several"
            )


# Copies of KV on the device, compiled before they are needed: where samples part, and from worker to worker.

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
