"""What a run will take and what there is, in bytes: estimated before anything is allocated."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from costmodel.host import free_memory_bytes
from models.config import ModelConfig
from models.errors import UserError
from models.transformer import abstract


def pool_bytes(config: ModelConfig, pages: int, page: int, dtype: str) -> int:
    """Bytes of a KV pool."""
    return pages * page * config.kv_bytes_per_token(jnp.dtype(dtype).itemsize)


@functools.cache
def weight_bytes(config: ModelConfig, dtype: str) -> tuple[int, int]:
    """(parameters, bytes), from the module's abstract state: nothing is allocated.

    One layer is described and counted `config.layers` times, for all are made alike; describing 80 takes seconds.
    """
    parameters = size = 0
    for path, variable in nnx.to_flat_state(nnx.state(abstract(config.first_layer(), dtype))):
        leaf, times = variable.get_value(), config.layers if path[0] == "layers" else 1
        parameters += times * leaf.size
        size += times * leaf.size * leaf.dtype.itemsize
    return parameters, size


def workspace_bytes(config: ModelConfig, rows: int, chunk: int) -> int:
    """Bytes that the largest step needs beside its arguments, an estimate from above.

    The logits of `rows` rows are held seven times where tokens are drawn (scaled, filtered, with noise, ...). A prefill of `chunk`
    tokens holds the widest activations of one layer and a residual of each, with one row of the vocabulary a token to spare.
    """
    activations = config.vocab_size + 3 * config.ffn + config.layers * config.hidden
    return 4 * (7 * rows * config.vocab_size + chunk * activations)


def available_bytes() -> int:
    """Bytes that can still be allocated on the default device."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return free_memory_bytes()


def check_memory(config: ModelConfig, dtype: str, pool: int, workspace: int) -> None:
    """Refuse, before anything is allocated, what does not fit: weights, KV pool and the step's workspace, all in bytes."""
    weights, free = weight_bytes(config, dtype)[1], available_bytes()
    needed = weights + pool + workspace
    if needed > free:
        gb = [f"{x / 1e9:.1f} GB" for x in (needed, weights, pool, workspace, free)]
        smaller = "a smaller model" if dtype == "bfloat16" else "a smaller model or --dtype bfloat16"
        raise UserError(
            f"this run needs about {gb[0]} of memory ({gb[1]} weights in {dtype}, {gb[2]} KV pool, {gb[3]} workspace), but {gb[4]} "
            f"are available; lower --batch or --max-new-tokens, or take {smaller}"
        )
