"""What a run will take and what there is, in bytes: estimated before anything is allocated."""

from __future__ import annotations

import functools
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import nnx

from costmodel.hardware.host import free_memory_bytes, resident_bytes
from models.checkpoint.base import Checkpoint, RandomCheckpoint
from models.config.model_config import ModelConfig
from models.errors import UserError
from models.transformer import abstract


def pool_bytes(config: ModelConfig, pages: int, page: int, dtype: str) -> int:
    """Bytes of a KV pool."""
    return pages * page * config.kv_bytes_per_token(jnp.dtype(dtype).itemsize)


def weight_bytes(config: ModelConfig, dtype: str) -> tuple[int, int]:
    """(parameters, bytes), from the module's abstract state: nothing is allocated."""
    weights = _weights(config, dtype)
    return sum(times * size for times, size, _ in weights), sum(times * size * width for times, size, width in weights)


def loading_bytes(checkpoint: Checkpoint | RandomCheckpoint) -> int:
    """Bytes that loading takes beside weights, an estimate from above: what is made on the way to the largest one, in float32.

    Drawing random ones takes bits and their normal numbers, before they are rounded; reading a file takes what stands there.
    """
    largest = max(size for _, size, _ in _weights(checkpoint.config, "float32"))
    return largest * (10 if isinstance(checkpoint, RandomCheckpoint) else 5)


@functools.cache
def _weights(config: ModelConfig, dtype: str) -> list[tuple[int, int, int]]:
    """(how many there are alike, parameters, bytes of each) of every kind of weight.

    One layer is described and counted `config.layers` times, for all are made alike; describing 80 takes seconds.
    """
    found = []
    for path, variable in nnx.to_flat_state(nnx.state(abstract(config.first_layer(), dtype))):
        leaf = variable.get_value()
        found.append((config.layers if path[0] == "layers" else 1, leaf.size, leaf.dtype.itemsize))
    return found


def workspace_bytes(config: ModelConfig, rows: int, chunk: int) -> int:
    """Bytes that the largest step needs beside its arguments, an estimate from above.

    The logits of `rows` rows are held seven times where tokens are drawn (scaled, filtered, with noise, ...). A prefill of `chunk`
    tokens holds the widest activations of one layer and a residual of each, with one row of the vocabulary a token to spare.
    """
    activations = config.vocab_size + 3 * config.ffn + config.layers * config.hidden
    return 4 * (7 * rows * config.vocab_size + chunk * activations)


def process_bytes(config: ModelConfig, programs: int, layers: str) -> int:
    """Bytes that the process takes on the host beside arrays, an estimate from above; none of them lie on an accelerator.

    What it holds already, what JAX and reading weights add, what the first compilation adds, and each compiled program, which grows
    with its layers where they are unrolled. Measured on a CPU with jaxlib 0.10.2: `tests/jaxserve/engine/test_memory_peak.py` compares.

    Args:
      programs: that are compiled.
      layers: as `load_model` has it.
    """
    if jax.default_backend() != "cpu":
        return 0
    each = 16 + (0 if layers == "scanned" else config.layers)
    return resident_bytes() + (240 + 340 + programs * each) * 1_000_000


class MemoryNeed(NamedTuple):
    """What a run takes in bytes, each an estimate from above.

    Attributes:
      workspace: of the largest step, or of loading where that takes more: not both at once.
    """

    weights: int
    pool: int
    workspace: int
    process: int

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint | RandomCheckpoint,
        dtype: str,
        *,
        pool: int,
        rows: int,
        chunk: int,
        programs: int,
        layers: str = "auto",
    ) -> Self:
        """Of a model whose weights are not loaded yet.

        Args:
          dtype: of the weights.
          pool: bytes.
          rows, chunk: of the largest step, see `workspace_bytes`.
          programs, layers: see `process_bytes`.
        """
        config = checkpoint.config
        workspace = max(workspace_bytes(config, rows, chunk), loading_bytes(checkpoint))
        return cls(weight_bytes(config, dtype)[1], pool, workspace, process_bytes(config, programs, layers))

    @property
    def total(self) -> int:
        return sum(self)

    def check(self, who: str, dtype: str, lower: str, flag: str = "") -> None:
        """Refuse, before anything is allocated, what does not fit.

        Args:
          who: needs it.
          dtype: of the weights.
          lower: what the user can lower.
          flag: what stands before a dtype that is written as an option.

        Raises:
          UserError: naming every number.
        """
        if self.total > (free := available_bytes()):
            total, weights, pool, workspace, process, there = (f"{x / 1e9:.1f} GB" for x in (self.total, *self, free))
            parts = f"{weights} weights in {dtype}, {pool} KV pool, {workspace} workspace"
            if self.process:
                parts += f", {process} process and programs"
            smaller = "a smaller model" if dtype == "bfloat16" else f"a smaller model or {flag}dtype bfloat16"
            raise UserError(
                f"{who} needs about {total} of memory ({parts}), but {there} are available; lower {lower}, or take {smaller}"
            )


def available_bytes() -> int:
    """Bytes that this process may hold: on an accelerator those that can still be allocated; on a CPU these and those that it holds."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return free_memory_bytes() + resident_bytes()
