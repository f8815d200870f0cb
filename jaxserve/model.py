"""A model made ready to serve: checkpoint, dtype and the arrays of the step, with its memory checked before any is taken."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from costmodel.host import memory_bytes
from costmodel.measure import default_dtype
from jaxserve.layers import stack_layers
from jaxserve.step import Serving, Step, serving
from models.checkpoint.load import load
from models.checkpoint.sources import open_checkpoint
from models.config import ModelConfig
from models.errors import UserError
from models.kv_cache import PagedKV
from models.tokenizer import Tokenizer
from models.transformer import abstract

DTYPES = ("float32", "bfloat16")
LAYERS = ("auto", "unrolled", "scanned")


@dataclasses.dataclass(frozen=True)
class Model:
    """What the engine needs of a model.

    Attributes:
      name: as the user wrote it.
      step: what is compiled; `serving` its read-only arguments for sequences of up to `context` tokens.
      dtype: of the matrices; norms, biases and activations are float32.
      parameters: number of weights, all of them.
      weight_bytes: what they take in memory.
    """

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    step: Step
    serving: Serving
    context: int
    dtype: str
    parameters: int
    weight_bytes: int

    def empty_pool(self, pages: int, page: int, dtype: str) -> PagedKV:
        """A pool of `pages` pages of `page` tokens, stored in `dtype`."""
        compute = "float32" if jax.default_backend() == "cpu" or dtype == "float32" else "bfloat16"
        return PagedKV.zeros(self.config, pages, page, dtype, compute=compute, stacked=self.step.stacked)


def choose_dtype(asked: str, rows: int) -> tuple[str, str]:
    """(dtype, why). "auto" takes bfloat16 on an accelerator and, on a CPU, what was measured to decode `rows` rows fastest."""
    if asked != "auto":
        if asked not in DTYPES:
            raise UserError(f"dtype {asked!r} is not supported; give auto, {' or '.join(DTYPES)}")
        return asked, "as asked"
    if jax.default_backend() != "cpu":
        return "bfloat16", f"what a {jax.default_backend()} multiplies fastest"
    choice = default_dtype(rows=(rows,))
    return choice.winner, choice.reason


def pool_bytes(config: ModelConfig, pages: int, page: int, dtype: str) -> int:
    """Bytes of a KV pool."""
    return pages * page * config.kv_bytes_per_token(jnp.dtype(dtype).itemsize)


def weight_bytes(config: ModelConfig, dtype: str) -> tuple[int, int]:
    """(parameters, bytes), from the module's abstract state: nothing is allocated."""
    leaves = jax.tree.leaves(nnx.state(abstract(config, dtype)))
    return sum(x.size for x in leaves), sum(x.size * x.dtype.itemsize for x in leaves)


def available_bytes() -> int:
    """Bytes that can still be allocated on the default device."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return memory_bytes() - os.sysconf("SC_PAGE_SIZE")


def check_memory(config: ModelConfig, dtype: str, pool: int, workspace: int) -> None:
    """Refuse, before anything is allocated, what does not fit: weights, KV pool and the step's workspace, all in bytes."""
    weights, free = weight_bytes(config, dtype)[1], available_bytes()
    needed = weights + pool + workspace
    if needed > free:
        gb = [f"{x / 1e9:.1f} GB" for x in (needed, weights, pool, workspace, free)]
        raise UserError(
            f"this run needs about {gb[0]} of memory ({gb[1]} weights in {dtype}, {gb[2]} KV pool, {gb[3]} workspace), but {gb[4]} "
            "are available; lower --batch, --context or --max-new-tokens, or take a smaller model or --dtype bfloat16"
        )


def read_config(name: str) -> ModelConfig:
    """The architecture alone, to check a run against before its weights are read."""
    return open_checkpoint(name).config


def load_model(
    name: str, *, dtype: str, context: int, layers: str = "auto", progress: Callable[[int], None] = lambda bytes: None
) -> Model:
    """Read or draw the weights.

    Args:
      name: see `models.checkpoint.sources.open_checkpoint`.
      dtype: float32 or bfloat16.
      context: tokens of the longest sequence, at most the model's.
      layers: "unrolled", "scanned", or "auto": scanned on a TPU, unrolled elsewhere.
      progress: called with the bytes of each weight that is ready.
    """
    checkpoint = open_checkpoint(name)
    config = checkpoint.config
    if not 1 <= context <= config.max_positions:
        raise UserError(f"--context is {context}; {name} takes 1 to {config.max_positions} tokens")

    def put(weight: jax.Array) -> jax.Array:
        array = jnp.asarray(weight)
        progress(array.nbytes)
        return array

    graph, state = load(checkpoint, jnp.dtype(dtype), put=put)
    parameters, size = weight_bytes(config, dtype)
    if layers not in LAYERS:
        raise UserError(f"layers {layers!r} is unknown; give {', '.join(LAYERS)}")
    stacked = layers == "scanned" or (layers == "auto" and jax.default_backend() == "tpu")
    if stacked:
        flat = dict(nnx.to_flat_state(state))
        del state  # so that `flat` is the only holder of the weights that are being stacked
        graph, state = stack_layers(config, flat)
    step = Step(graph, config, stacked=stacked)
    return Model(name, config, checkpoint.tokenizer(), step, serving(config, state, context), context, dtype, parameters, size)
