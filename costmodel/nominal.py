"""The nominal roofline of a decode step: the idealised traffic that every other count is compared with.

Each weight is read from memory once a step, each live sequence's KV cache once a step, a parameter costs one multiply and one
add a row, and nothing else is charged (facts.md sections 2 and 3; the model of Pope et al. 2022, section 3, without its
attention and communication terms). Left out, and so never to be blamed on it: attention matmuls, activations, KV writes,
launches, kernel efficiency, the host.

Quantities may be numbers, NumPy arrays or JAX arrays, which broadcast as usual. Every product starts from a Python float,
because a batch given as int32 would overflow in bytes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from costmodel.chips import Chip
from models.config import ModelConfig
from models.errors import UserError

# float | np.ndarray | jax.Array. Written as Any because the three share no static type that has arithmetic, and a caller who
# passes floats should get floats to format and round.
Quantity: TypeAlias = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NominalStep:
    """What one decode step must move (B) and compute (FLOP), and how many rows share it."""

    weight_bytes: Quantity
    kv_bytes: Quantity
    flops: Quantity
    rows: Quantity

    @property
    def bytes(self) -> Quantity:
        return self.weight_bytes + self.kv_bytes

    @property
    def intensity(self) -> Quantity:
        """FLOP per byte moved."""
        return self.flops / self.bytes

    @property
    def intensity_limit(self) -> Quantity:
        """FLOP/B that the intensity tends to as rows of this context are added without end: 119.2 for the 8B model at 1024."""
        return self.flops / self.kv_bytes

    @property
    def weight_bytes_per_row(self) -> Quantity:
        """Bytes of weights that each token of the step pays for."""
        return self.weight_bytes / self.rows

    def memory_seconds(self, chip: Chip) -> Quantity:
        return self.bytes / chip.bandwidth

    def compute_seconds(self, chip: Chip, itemsize: int = 2) -> Quantity:
        """Seconds at the chip's dense peak for operands of `itemsize` bytes."""
        return self.flops / chip.peak(itemsize)

    def seconds(self, chip: Chip, itemsize: int = 2) -> Quantity:
        """The longer of the two: memory and arithmetic are taken to overlap perfectly."""
        memory, compute = self.memory_seconds(chip), self.compute_seconds(chip, itemsize)
        return jnp.maximum(memory, compute) if isinstance(memory, jax.Array) else np.maximum(memory, compute)

    def tokens_per_second(self, chip: Chip, itemsize: int = 2) -> Quantity:
        return self.rows / self.seconds(chip, itemsize)


def nominal_step(
    parameters: float, weight_itemsize: float, kv_bytes_per_token: float, batch: Quantity, context: Quantity
) -> NominalStep:
    """The step of `batch` rows that all hold `context` tokens in the cache.

    Args:
      parameters: weights of the model, all of them.
      weight_itemsize: bytes of one weight; may be a fraction for block-quantised weights.
      kv_bytes_per_token: K and V of one token over all layers, e.g. `ModelConfig.kv_bytes_per_token`.
      batch: rows, a number or an array.
      context: cached tokens read by each row; broadcasts against `batch`. An average serves when no layer has a window.

    Raises:
      UserError: a number that is not positive (arrays are not checked, so that the function can be traced).
    """
    _check(parameters=parameters, weight_itemsize=weight_itemsize, batch=batch)
    return NominalStep(
        weight_bytes=float(parameters) * weight_itemsize,
        kv_bytes=float(kv_bytes_per_token) * batch * context,
        flops=2.0 * float(parameters) * batch,
        rows=batch,
    )


def nominal_of_model(
    config: ModelConfig, parameters: int, contexts: np.ndarray, *, weight_itemsize: float, kv_itemsize: int
) -> NominalStep:
    """The nominal step of real rows, each with a context of its own.

    Args:
      config: shapes of the model. A layer with a window reads at most that many cached tokens.
      parameters: the real number of weights, an embedding table included, which the nominal model charges as if multiplied.
      contexts: int [rows], cached tokens of each live row. Padded rows are left out: they are no work that anybody asked for.
      weight_itemsize, kv_itemsize: bytes of one stored element.

    Raises:
      UserError: no rows, or a number that is not positive.
    """
    lengths = np.asarray(contexts, dtype=np.float64).reshape(-1)
    _check(parameters=parameters, weight_itemsize=weight_itemsize, rows=lengths.size)
    layer_token = config.kv_bytes_per_token(kv_itemsize) / config.layers
    read = sum(float(np.minimum(lengths, np.inf if window is None else window).sum()) for window in config.windows)
    return NominalStep(float(parameters) * weight_itemsize, layer_token * read, 2.0 * parameters * lengths.size, lengths.size)


@dataclasses.dataclass(frozen=True)
class NominalProjection:
    """One matmul [rows, inputs] @ [inputs, outputs] with its activations, `itemsize` bytes an element (facts.md section 2)."""

    rows: Quantity
    inputs: int
    outputs: int
    itemsize: float

    @property
    def weight_bytes(self) -> float:
        return float(self.itemsize) * self.inputs * self.outputs

    @property
    def input_bytes(self) -> Quantity:
        return float(self.itemsize) * self.inputs * self.rows

    @property
    def output_bytes(self) -> Quantity:
        return float(self.itemsize) * self.outputs * self.rows

    @property
    def bytes(self) -> Quantity:
        return self.weight_bytes + self.input_bytes + self.output_bytes

    @property
    def flops(self) -> Quantity:
        return 2.0 * self.inputs * self.outputs * self.rows

    @property
    def intensity(self) -> Quantity:
        """AI(B) = 2 B d d' / (s (d d' + B d + B d')) in FLOP/B."""
        return self.flops / self.bytes

    @property
    def weight_intensity(self) -> Quantity:
        """FLOP/B when only the weights are charged: B at 2 bytes an element."""
        return self.flops / self.weight_bytes


def _check(**values: Quantity) -> None:
    for name, value in values.items():
        if isinstance(value, (int, float)) and not value > 0:
            raise UserError(f"nominal step: {name} is {value}; it must be above 0")
