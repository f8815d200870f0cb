"""What fits: weights, workspace and a KV pool on chips of so much memory, and sequences in a pool.

Bytes are those of the architecture and its formats. A runtime's own memory and fragmentation are known to nobody in advance: give them
as `reserve`, and as `headroom` the pages that should stay free. Without those what does not fit here fits nowhere, and what fits here
exactly may not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from costmodel.analytical.rows import check_quantity
from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import as_architecture
from costmodel.arch.deployment import Deployment, Storage
from costmodel.arch.formats import Format
from costmodel.hardware.chip import Chip
from costmodel.hardware.chips import find_chip
from models.config.model_config import ModelConfig
from models.errors import UserError

MOST_CHIPS = 1024  # beyond which no degree is looked for
ENTRY = 4.0  # B of an int32 in a page table

Model = Architecture | ModelConfig | Mapping[str, Any] | str


@dataclasses.dataclass(frozen=True)
class Pool:
    """A KV pool of `size` B for a model whose tokens take `token` B over all layers, in pages of `page` tokens.

    Attributes:
      entry: B of metadata that each page costs beside its KV: its entry in a page table (`ENTRY`), counters, scales.
      headroom: the share of the pages that is kept free, so that sequences that run can grow without taking another's memory.
    """

    size: float
    token: float
    page: int = 1
    entry: float = 0.0
    headroom: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("pool size", self.size), ("KV bytes of a token", self.token), ("page size", self.page)):
            check_quantity(name, value)
        if not self.entry >= 0:
            raise UserError(f"metadata of a page is {self.entry:g} B; it must be at least 0")
        if not 0 <= self.headroom < 1:
            raise UserError(f"headroom is {self.headroom:g}; it must be a share from 0 to below 1, such as 0.01")

    @property
    def pages(self) -> int:
        """Pages that the pool holds with their metadata."""
        return int(self.size // (self.token * self.page + self.entry))

    @property
    def usable(self) -> int:
        """Pages that sequences may fill: all but the headroom."""
        return self.pages - math.ceil(self.headroom * self.pages)

    @property
    def metadata(self) -> float:
        """B of metadata of all pages."""
        return self.pages * self.entry

    def pages_of(self, context: int) -> int:
        """Pages of one sequence of `context` tokens; the last one may be partly empty."""
        check_quantity("context", context)
        return math.ceil(context / self.page)

    def sequence(self, context: int) -> float:
        """B of KV of one sequence of `context` tokens, its last page included whole."""
        return self.token * self.page * self.pages_of(context)

    def sequences(self, context: int) -> int:
        """Full sequences of that length that the pool holds together."""
        return self.usable // self.pages_of(context)

    def over(self, batch: int, context: int) -> float:
        """B by which so many full sequences, with metadata, exceed what the pool has for them; 0 where they fit."""
        check_quantity("batch", batch)
        wanted = batch * self.pages_of(context) * (self.token * self.page + self.entry)
        return max(wanted - self.size * (1 - self.headroom), 0.0)


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether a model and its pool fit `degree` chips that share every layer.

    Attributes:
      weights, pool, workspace: B on each chip. Together the pools may be larger than was asked for: where chips outnumber KV heads,
        heads are held several times.
      reserve: the share of a chip's memory that is left to others.
      degree: chips.
      least: the smallest degree that fits, None where none up to `MOST_CHIPS` does.
      replication: pools of all chips together over the pool that was asked for: 1, or more where heads are held several times.
    """

    name: str
    chip: Chip
    weights: float
    pool: float
    degree: int
    least: int | None
    workspace: float = 0.0
    reserve: float = 0.0
    replication: float = 1.0

    @property
    def needed(self) -> float:
        """B on each chip."""
        return self.weights + self.pool + self.workspace

    @property
    def memory(self) -> float:
        """B of a chip that may be used."""
        return float(self.chip.memory) * (1 - self.reserve)

    @property
    def fits(self) -> bool:
        return self.needed <= self.memory

    @property
    def room(self) -> float:
        """B that are left for KV after weights and workspace: of all heads together, each counted once. 0 where nothing is left."""
        return max(self.memory - self.weights - self.workspace, 0.0) * self.degree / self.replication

    @property
    def verdict(self) -> str:
        """One line for people."""
        on = f"one {self.chip.name}" if self.degree == 1 else f"each of {self.degree} {self.chip.name}"
        sizes = {"weights": self.weights, "workspace": self.workspace, "KV pool": self.pool}
        *parts, last = (f"{size / 1e9:.1f} GB of {what}" for what, size in sizes.items() if size)
        takes = f"{', '.join(parts)} and {last}" if parts else last
        memory = f"{float(self.chip.memory) / 1e9:.0f} GB"
        if self.reserve:
            memory += f" less {self.reserve:.0%}"
        if self.fits:
            return f"{self.name} fits {on} of {memory}: {takes}"
        least = (
            f"no tensor-parallel degree up to {MOST_CHIPS}" if self.least is None else f"tensor-parallel degree {self.least}"
        )
        return f"{self.name} does not fit {on} of {memory}: {takes}; the smallest that does is {least}"


def kv_pool(
    config: Model,
    size: float,
    *,
    kv_dtype: str | Format = "bfloat16",
    page: int = 1,
    entry: float = 0.0,
    headroom: float = 0.0,
) -> Pool:
    """A pool of `size` B for a model, all chips together, before any head is held twice. `entry`, `headroom`: see `Pool`."""
    held = Deployment(as_architecture(config), Storage.of("bfloat16", kv_dtype))
    return Pool(size, held.kv_bytes_per_token, page, entry, headroom)


def workspace_bytes(
    config: Model, *, rows: int, tokens: int, tensor_parallel: int = 1, dtype: str | Format = "bfloat16"
) -> float:
    """B on each chip that a step cannot do without beside weights and KV, its widest moment (Pope et al. 2022, section 3).

    The residual stream and its norm of all tokens, whole on each chip; the chip's part of the MLP's width, or of queries, keys and values
    where that is more; and f32 logits of its part of the vocabulary for each row that draws a token. A real program needs more.

    Args:
      rows: that draw a token in the step.
      tokens: that the step computes, prompts included.
      dtype: of the activations: the format of the weights, see `costmodel.arch.deployment.Storage.of`.
    """
    check_quantity("rows", rows)
    check_quantity("tokens of a step", tokens)
    architecture = as_architecture(config)
    held = Deployment(architecture, Storage.of(dtype), tensor_parallel)
    mlp = (2 if architecture.gated else 1) * architecture.ffn / tensor_parallel
    heads = (architecture.heads + 2 * architecture.kv_heads) * architecture.head_dim / tensor_parallel
    each = (2 * architecture.hidden + max(mlp, heads)) * held.storage.activation_bytes
    return tokens * each + 4.0 * rows * math.ceil(architecture.vocab / tensor_parallel)


def fit(
    config: Model,
    chip: Chip | str,
    *,
    pool: float = 0.0,
    tensor_parallel: int = 1,
    dtype: str | Format | Mapping[str, str | Format] = "bfloat16",
    kv_dtype: str | Format | None = None,
    parameters: float | None = None,
    rows: int = 0,
    tokens: int = 0,
    reserve: float = 0.0,
) -> Fit:
    """Whether weights, workspace and a KV pool fit, and on how few chips they would.

    Args:
      config, dtype, kv_dtype: as of `costmodel.analytical.step.step_cost`.
      pool: B of KV that are asked for, of all heads together.
      parameters: of the nominal model, in place of the architecture's own count, each in the default format: 70e9 for a round 70B.
      rows, tokens: of the largest step, whose `workspace_bytes` are counted; 0 for none.
      reserve: the share of a chip's memory that a runtime and others take.

    Raises:
      UserError: a degree that divides neither heads nor width, a negative pool.
    """
    if not pool >= 0:
        raise UserError(f"pool is {pool:g}; it must be at least 0")
    if not 0 <= reserve < 1:
        raise UserError(f"reserve is {reserve:g}; it must be a share from 0 to below 1, such as 0.1")
    if parameters is not None:
        check_quantity("parameters", parameters)
    architecture, storage = as_architecture(config), Storage.of(dtype, kv_dtype)
    on = find_chip(chip) if isinstance(chip, str) else chip
    alone = Deployment(architecture, storage).kv_bytes_per_token

    def at(degree: int) -> tuple[float, float, float]:
        held = Deployment(architecture, storage, degree)
        weights = held.all_weight_bytes if parameters is None else parameters * storage.weights["default"].bits / 8 / degree
        beside = 0.0
        if tokens:
            beside = workspace_bytes(
                architecture, rows=max(rows, 1), tokens=tokens, tensor_parallel=degree, dtype=storage.activation
            )
        return weights, pool * held.kv_bytes_per_token / alone, beside

    weights, share, workspace = at(tensor_parallel)
    usable = float(on.memory) * (1 - reserve)
    least = next((n for n in range(1, MOST_CHIPS + 1) if divides(architecture, n) and sum(at(n)) <= usable), None)
    replication = Deployment(architecture, storage, tensor_parallel).kv_bytes_per_token * tensor_parallel / alone
    return Fit(architecture.name, on, weights, share, tensor_parallel, least, workspace, reserve, replication)


def divides(architecture: Architecture, degree: int) -> bool:
    """Whether so many chips can share every layer."""
    try:
        architecture.check_degree(degree)
    except UserError:
        return False
    return True
