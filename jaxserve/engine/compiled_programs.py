"""What an engine compiles before it serves. Several engines of one shape may share it: a second one then starts at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Self

from jaxserve.engine.kv_copier import KVCopier
from jaxserve.engine.model import Model
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.features import Features
from jaxserve.programs.program_set import Program, Programs, compile_programs
from models.errors import UserError
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
