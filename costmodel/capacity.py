"""What fits: weights and a KV pool on chips of so much memory, and sequences in a pool (facts.md sections 3 and 4).

Bytes are those of the architecture and its formats. What a runtime, a program's temporaries and the pages' metadata take is left out, so
what does not fit here fits nowhere, and what fits here exactly may not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from costmodel.architecture import Architecture
from costmodel.catalog import as_architecture
from costmodel.chip import Chip
from costmodel.chips import find_chip
from costmodel.deployment import Deployment, Storage
from costmodel.formats import Format
from costmodel.rows import check_quantity
from models.config import ModelConfig
from models.errors import UserError

_GIB = 2**30
MOST_CHIPS = 1024  # beyond which no degree is looked for


@dataclasses.dataclass(frozen=True)
class Pool:
    """A KV pool of `size` B for a model whose tokens take `token` B over all layers, in pages of `page` tokens."""

    size: float
    token: float
    page: int = 1

    def __post_init__(self) -> None:
        for name, value in (("pool size", self.size), ("KV bytes of a token", self.token), ("page size", self.page)):
            check_quantity(name, value)

    def sequence(self, context: int) -> float:
        """B of one sequence of `context` tokens, its last page included whole."""
        check_quantity("context", context)
        return self.token * self.page * math.ceil(context / self.page)

    def sequences(self, context: int) -> int:
        """Full sequences of that length that the pool holds together."""
        return int(self.size // self.sequence(context))

    def over(self, batch: int, context: int) -> float:
        """B by which so many full sequences exceed the pool; 0 where they fit."""
        check_quantity("batch", batch)
        return max(batch * self.sequence(context) - self.size, 0.0)


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether a model and its pool fit `degree` chips that share every layer.

    Attributes:
      weights, pool: B on each chip. Together the pools may be larger than was asked for: where chips outnumber KV heads, heads are
        held several times.
      degree: chips.
      least: the smallest degree that fits, None where none up to `MOST_CHIPS` does.
    """

    name: str
    chip: Chip
    weights: float
    pool: float
    degree: int
    least: int | None

    @property
    def needed(self) -> float:
        """B on each chip."""
        return self.weights + self.pool

    @property
    def fits(self) -> bool:
        return self.needed <= self.chip.memory

    @property
    def verdict(self) -> str:
        """One line for people."""
        on = f"one {self.chip.name}" if self.degree == 1 else f"each of {self.degree} {self.chip.name}"
        parts = f"{self.weights / 1e9:.1f} GB of weights and {self.pool / 1e9:.1f} GB of KV pool"
        memory = f"{self.chip.memory / 1e9:.0f} GB"
        if self.fits:
            return f"{self.name} fits {on} of {memory}: {parts}"
        least = (
            f"no tensor-parallel degree up to {MOST_CHIPS}" if self.least is None else f"tensor-parallel degree {self.least}"
        )
        return f"{self.name} does not fit {on} of {memory}: {parts}; the smallest that does is {least}"


def kv_pool(
    config: Architecture | ModelConfig | Mapping[str, Any] | str,
    size: float,
    *,
    kv_dtype: str | Format = "bfloat16",
    page: int = 1,
) -> Pool:
    """A pool of `size` B for a model, all chips together, before any head is held twice."""
    held = Deployment(as_architecture(config), Storage.of("bfloat16", kv_dtype))
    return Pool(size, held.kv_bytes_per_token, page)


def fit(
    config: Architecture | ModelConfig | Mapping[str, Any] | str,
    chip: Chip | str,
    *,
    pool: float = 0.0,
    tensor_parallel: int = 1,
    dtype: str | Format | Mapping[str, str | Format] = "bfloat16",
    kv_dtype: str | Format | None = None,
    parameters: float | None = None,
) -> Fit:
    """Whether weights and a KV pool fit, and on how few chips they would.

    Args:
      config, dtype, kv_dtype: as of `costmodel.analytical.step_cost`.
      pool: B of KV that are asked for, of all heads together.
      parameters: of the nominal model, in place of the architecture's own count, each in the default format: 70e9 for a round 70B.

    Raises:
      UserError: a degree that divides neither heads nor width, a negative pool.
    """
    if not pool >= 0:
        raise UserError(f"pool is {pool:g}; it must be at least 0")
    if parameters is not None:
        check_quantity("parameters", parameters)
    architecture, storage = as_architecture(config), Storage.of(dtype, kv_dtype)
    on = find_chip(chip) if isinstance(chip, str) else chip

    def at(degree: int) -> tuple[float, float]:
        held = Deployment(architecture, storage, degree)
        weights = held.all_weight_bytes if parameters is None else parameters * storage.weights["default"].bits / 8 / degree
        return weights, pool * held.kv_bytes_per_token / Deployment(architecture, storage).kv_bytes_per_token

    weights, share = at(tensor_parallel)
    least = next((n for n in range(1, MOST_CHIPS + 1) if _divides(architecture, n) and sum(at(n)) <= on.memory), None)
    return Fit(architecture.name, on, weights, share, tensor_parallel, least)


def _divides(architecture: Architecture, degree: int) -> bool:
    try:
        architecture.check_degree(degree)
    except UserError:
        return False
    return True
