"""A model made ready to serve: checkpoint, dtype, and the arrays of the step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from costmodel.hardware.ceilings import default_dtype
from jaxserve.programs.memory import weight_bytes
from jaxserve.programs.step import Step
from jaxserve.values import DTYPES, LAYERS
from models.checkpoint.base import Checkpoint, RandomCheckpoint
from models.checkpoint.load import load
from models.checkpoint.sources import open_checkpoint
from models.config.model_config import ModelConfig
from models.errors import UserError
from models.forward import Serving, serving
from models.kv_cache import ContiguousKV, PagedKV
from models.layers import KV, stack_layers
from models.text.tokenizer import Tokenizer

MEASURED_ROWS = 128  # a dtype is raced at no more rows: beyond, a step is bound by arithmetic and the answer stays


@dataclasses.dataclass(frozen=True)
class Model:
    """What the engine needs of a model.

    Attributes:
      name: as the user wrote it.
      step: what is compiled; `serving` its read-only arguments for sequences of up to `context` tokens.
      dtype: of the matrices; norms, biases and activations are float32.
      parameters: number of weights, all of them.
      weight_bytes: what they take in memory.
      device: where all of it lives, where that is not JAX's default.
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
    device: jax.Device | None = None

    def empty_pool(self, units: int, unit: int, dtype: str, *, contiguous: bool = False) -> KV:
        """A pool of `units` pages (or slots, where `contiguous`) of `unit` tokens, stored in `dtype`."""
        kind: type[PagedKV] | type[ContiguousKV] = ContiguousKV if contiguous else PagedKV
        on_cpu = (self.device.platform if self.device else jax.default_backend()) == "cpu"
        compute = "float32" if on_cpu or dtype == "float32" else "bfloat16"
        pool = kind.zeros(self.config, units, unit, dtype, compute=compute, stacked=self.step.stacked, heads_first=on_cpu)
        return pool if self.device is None else jax.device_put(pool, self.device)


def choose_dtype(asked: str, rows: int) -> tuple[str, str]:
    """(dtype, why). "auto" takes bfloat16 on an accelerator and, on a CPU, what was measured to decode `rows` rows fastest."""
    if asked != "auto":
        if asked not in DTYPES:
            raise UserError(f"dtype {asked!r} is not supported; give auto, {' or '.join(DTYPES)}")
        return asked, "as asked"
    if jax.default_backend() != "cpu":
        return "bfloat16", f"what a {jax.default_backend()} multiplies fastest"
    choice = default_dtype(rows=(min(rows, MEASURED_ROWS),))
    return choice.winner, choice.reason


def batch_caveat(dtype: str, kv_dtype: str, instead: str) -> str:
    """What users are to know of weights and KV in these dtypes, a line; nothing where both are float32.

    In 16 bits what is summed in another order, for another batch, is rounded to another number now and then.

    Args:
      instead: the options by which an answer depends on its request alone.
    """
    if dtype == kv_dtype == "float32":
        return ""
    return f"in 16 bits an answer may depend on its batch, where two tokens are almost equally likely; {instead} rules it out\n"


def load_model(
    name: str,
    *,
    dtype: str,
    context: int,
    layers: str = "auto",
    progress: Callable[[int], None] = lambda bytes: None,
    checkpoint: Checkpoint | RandomCheckpoint | None = None,
    device: jax.Device | None = None,
) -> Model:
    """Read or draw the weights.

    Args:
      name: see `models.checkpoint.sources.open_checkpoint`.
      dtype: float32 or bfloat16.
      context: tokens of the longest sequence, at most the model's.
      layers: "unrolled", "scanned", or "auto": scanned on a TPU, unrolled elsewhere.
      progress: called with the bytes of each weight that is ready.
      checkpoint: what `name` stands for, where it is open already.
      device: where the weights are to live, and so where every step of this model runs; JAX's default device if None.
    """
    checkpoint = checkpoint or open_checkpoint(name)
    config = checkpoint.config
    if not 1 <= context <= config.max_positions:
        raise UserError(f"--context is {context}; {name} takes 1 to {config.max_positions} tokens")

    def put(weight: jax.Array) -> jax.Array:
        array = jnp.asarray(weight) if device is None else jax.device_put(weight, device)
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
    arrays = serving(config, state, context)
    if device is not None:
        arrays = jax.device_put(arrays, device)
    step = Step(graph, config, stacked=stacked)
    return Model(name, config, checkpoint.tokenizer(), step, arrays, context, dtype, parameters, size, device)
