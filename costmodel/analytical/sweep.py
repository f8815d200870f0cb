"""Many configurations at once: `step_cost`, traced once, mapped by `jax.vmap` over points.

The recipe is short, so that other sweeps can be written after it: stack the chips, index them by point, let `step_cost` see one point, and
return only what is wanted, for XLA computes nothing else. Any argument that may be an array can be a coordinate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from costmodel.analytical.rows import check_quantity
from costmodel.analytical.step import step_cost
from costmodel.analytical.terms import BOUNDS
from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import as_architecture
from costmodel.hardware.chip import Chip, stack
from costmodel.hardware.chips import find_chip
from models.config.model_config import ModelConfig
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Roofline results of many points, f32 arrays of one shape."""

    seconds: np.ndarray
    tokens_per_second: np.ndarray
    intensity: np.ndarray  # FLOP/B
    limit: np.ndarray  # index into `costmodel.analytical.terms.BOUNDS` of what bounds the step

    @property
    def bound(self) -> np.ndarray:
        return np.array(BOUNDS)[self.limit]


def sweep(
    config: Architecture | ModelConfig | Mapping[str, Any] | str,
    chips: Sequence[Chip | str],
    which: Any,
    batch: Any,
    context: Any,
    **more: Any,
) -> Sweep:
    """Price a step at every point (chip, batch, context).

    Args:
      config: as of `step_cost`.
      chips: the chips that points refer to.
      which: int, a point's chip as an index into `chips`.
      batch, context: of a point. The three broadcast to the shape of the result, so ``which[:, None, None], batch[:, None], context``
        is a grid.
      more: other arguments of `step_cost`, the same for all points: kind, dtype, tensor_parallel, ...

    Raises:
      UserError: whatever `step_cost` refuses at any point, or an index without a chip.
    """
    architecture = as_architecture(config)
    stacked = stack([find_chip(chip) if isinstance(chip, str) else chip for chip in chips])
    at, rows, cached = np.broadcast_arrays(np.asarray(which), np.asarray(batch, np.float32), np.asarray(context, np.float32))
    if not np.issubdtype(at.dtype, np.integer) or at.min(initial=0) < 0 or at.max(initial=0) >= len(chips):
        raise UserError(f"sweep: which must hold whole numbers from 0 to {len(chips) - 1}, one for each chip")
    check_quantity("batch", rows)
    check_quantity("context", cached, most=architecture.max_positions, limit=f", the longest that {architecture.name} takes")

    def point(i: jax.Array, batch: jax.Array, context: jax.Array) -> tuple[jax.Array, ...]:
        chip = jax.tree.map(lambda figures: jnp.asarray(figures)[i], stacked)
        cost = step_cost(architecture, batch=batch, context=context, chip=chip, **more)
        times = jnp.stack([cost.memory_seconds(), cost.compute_seconds(), jnp.asarray(cost.link_seconds())])
        return cost.seconds(), cost.tokens_per_second(), cost.intensity, jnp.argmax(times)

    found = jax.jit(jax.vmap(point))(at.ravel(), rows.ravel(), cached.ravel())
    return Sweep(*(np.asarray(array).reshape(at.shape) for array in found))
