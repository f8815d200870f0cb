"""The nominal roofline of a step: the idealised traffic that every other count is compared with.

Each weight is read from memory once a step, each live sequence's KV cache once a step, a parameter costs one multiply and one
add a token, and nothing else is charged (the model of Pope et al. 2022, section 3, without its
attention and communication terms). Left out, and so never to be blamed on it: attention matmuls, activations, KV writes,
launches, kernel efficiency, the host.

It is the coarse level of detail of `costmodel.analytical.step`, with the same terms, for callers that have figures and no architecture.
"""

from __future__ import annotations

import numpy as np

from costmodel.analytical.rows import check_quantity, real
from costmodel.analytical.terms import StepCost, Term
from costmodel.hardware.chip import Quantity
from models.config.model_config import ModelConfig

SOURCE = "idealised decode traffic; Pope et al. 2022, section 3"


def nominal_terms(
    parameters: Quantity, weight_itemsize: float, kv_bytes: Quantity, tokens: Quantity, compute: str
) -> tuple[Term, ...]:
    """The two terms. `kv_bytes` is what all rows hold together, `compute` the dtype whose peak the FLOPs are priced at."""
    read = float(weight_itemsize) * parameters
    return (
        Term("weights", "all", "weights", 2.0 * parameters * tokens, read, 0.0, compute, "P s B; 2 P T FLOP", SOURCE),
        Term(
            "KV read",
            "kv_read",
            "kv",
            0.0 * tokens,
            kv_bytes,
            0.0,
            compute,
            "sum over rows of S times KV bytes a token",
            SOURCE,
        ),
    )


def nominal_step(
    parameters: float, weight_itemsize: float, kv_bytes_per_token: float, batch: Quantity, context: Quantity
) -> StepCost:
    """The step of `batch` rows that all hold `context` tokens in the cache.

    Args:
      parameters: weights of the model, all of them.
      weight_itemsize: bytes of one weight; may be a fraction for block-quantised weights.
      kv_bytes_per_token: K and V of one token over all layers, e.g. `ModelConfig.kv_bytes_per_token`.
      batch: rows, a number or an array.
      context: cached tokens read by each row; broadcasts against `batch`. An average serves when no layer has a window.

    Raises:
      UserError: a number that is not positive.
    """
    _check(parameters=parameters, weight_itemsize=weight_itemsize, batch=batch, context=context)
    rows = real(batch)
    kv = float(kv_bytes_per_token) * rows * real(context)
    return StepCost(nominal_terms(float(parameters), weight_itemsize, kv, rows, compute_dtype(weight_itemsize)), rows, rows)


def nominal_of_model(
    config: ModelConfig,
    parameters: int,
    contexts: np.ndarray,
    *,
    weight_itemsize: float,
    kv_itemsize: int,
    tokens: int | None = None,
) -> StepCost:
    """The nominal step of real rows, each with a context of its own.

    Args:
      config: shapes of the model. A layer with a window reads at most that many cached tokens.
      parameters: the real number of weights, an embedding table included, which the nominal model charges as if multiplied.
      contexts: int [rows], cached tokens of each live row. Padded rows are left out: they are no work that anybody asked for.
      weight_itemsize, kv_itemsize: bytes of one stored element.
      tokens: tokens that the step computes; one a row if None. A row of prefill has many.

    Raises:
      UserError: no rows, or a number that is not positive.
    """
    lengths = np.asarray(contexts, dtype=np.float64).reshape(-1)
    computed = lengths.size if tokens is None else tokens
    _check(parameters=parameters, weight_itemsize=weight_itemsize, rows=lengths.size, tokens=computed)
    layer_token = config.kv_bytes_per_token(kv_itemsize) / config.layers
    read = sum(float(np.minimum(lengths, np.inf if window is None else window).sum()) for window in config.windows)
    terms = nominal_terms(float(parameters), weight_itemsize, layer_token * read, computed, compute_dtype(weight_itemsize))
    return StepCost(terms, computed, lengths.size)


def compute_dtype(weight_itemsize: float) -> str:
    """What weights of so many bytes are multiplied in."""
    return "float32" if weight_itemsize == 4 else "bfloat16"


def _check(**values: Quantity) -> None:
    for name, value in values.items():
        check_quantity(f"nominal step: {name}", value)
