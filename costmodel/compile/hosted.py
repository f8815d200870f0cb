"""A step run on this machine: real arguments for a `StepProgram`, its compiled form, and what it takes here."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.stages import Compiled

from costmodel.compile.program import StepProgram
from costmodel.hardware.ceilings import Measured, measure
from costmodel.hardware.host import memory_bytes
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class HostedStep:
    """The program, compiled for this machine's default device."""

    program: StepProgram
    compiled: Compiled

    @classmethod
    def compile(cls, program: StepProgram) -> HostedStep:
        jitted = jax.jit(program, donate_argnums=program.donate)
        return cls(program, jitted.lower(*program.abstract_args()).compile())

    def measure(self, *, repeats: int = 20) -> Measured:
        """Time steps in which every row holds the program's full context, over random weights and an empty cache.

        What a step takes does not depend on the values in its arguments; the cache that a step returns goes into the next.

        Raises:
          UserError: the arguments need more memory than there is.
        """
        needed = _bytes(self.program.abstract_args())
        if needed > 0.9 * memory_bytes() and jax.default_backend() == "cpu":
            raise UserError(
                f"measuring this step needs {needed / 1e9:.1f} GB for weights and KV, and this machine has "
                f"{memory_bytes() / 1e9:.1f} GB; take a smaller model, batch or context"
            )
        serving, kv, segments = self.program.arguments()
        held = [kv]

        def step() -> Any:
            held[0], tokens = self.compiled(serving, held[0], segments)
            return tokens

        return measure(step, repeats=repeats)


def _bytes(arguments: Any) -> int:
    """B of a tree of abstract arrays."""
    return sum(int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arguments))
