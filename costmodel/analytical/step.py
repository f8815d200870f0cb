"""What a step must move and compute, worked out from the architecture alone: the first of the three witnesses.

`step_cost` prices decode, prefill (whole or in chunks), mixed and verification steps at two levels of detail that share terms and totals:
`nominal`, the idealised model of `costmodel.analytical.nominal`, and `full`, which charges what a perfect implementation could
not avoid. Neither knows a kernel: what a real program moves beyond this is what the other witnesses are asked for.

Numbers, NumPy arrays and JAX arrays may be given for batch, context, chunk and the figures of the chip. They broadcast, and the
function can be traced, mapped and differentiated by any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.analytical.attention_terms import attention_terms
from costmodel.analytical.linear_terms import linear_terms
from costmodel.analytical.nominal import nominal_terms
from costmodel.analytical.request import Request, check_choice
from costmodel.analytical.rows import Rows, check_quantity, real
from costmodel.analytical.terms import StepCost, Term, padding_terms
from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import as_architecture
from costmodel.arch.deployment import Deployment, Storage
from costmodel.arch.formats import Format
from costmodel.hardware.chip import Chip, Quantity
from costmodel.hardware.chips import find_chip
from models.config.model_config import ModelConfig
from models.errors import UserError

DETAILS = ("full", "nominal")


def step_cost(
    config: Architecture | ModelConfig | Mapping[str, Any] | str,
    *,
    batch: Quantity | None = None,
    context: Quantity | None = None,
    contexts: Quantity | None = None,
    kind: str = "decode",
    chip: Chip | str | None = None,
    detail: str = "full",
    chunk: Quantity | None = None,
    prompts: Quantity | None = None,
    prompt_context: Quantity | None = None,
    drafts: Quantity | None = None,
    padded_batch: Quantity | None = None,
    padded_chunk: Quantity | None = None,
    dtype: str | Format | Mapping[str, str | Format] = "bfloat16",
    kv_dtype: str | Format | None = None,
    activation_dtype: str | None = None,
    compute: str | None = None,
    tensor_parallel: int = 1,
    parameters: Quantity | None = None,
) -> StepCost:
    """The cost of one step on each of `tensor_parallel` chips.

    Args:
      config: an architecture, a config of the engine, the name of either, or a parsed config.json.
      batch: rows. With `contexts`, their number follows from it.
      context: tokens of each row in the cache when the step ends, those of this step included: what the last query attends to.
      contexts: the same row by row, [..., rows], in place of `batch` and `context`.
      kind: "decode", one token a row; "prefill", `chunk` tokens a row; "verify", `drafts` + 1 tokens a row, each with logits;
        "mixed", decode rows together with chunks of prompts.
      chip: what `StepCost.seconds()` and its kin are for; a name or a `Chip`, whose figures may be arrays.
      detail: "full" or "nominal".
      chunk: tokens of each prompt that the step computes, after context - chunk that the cache has; all of the context if None.
      prompts, prompt_context: in a mixed step, how many prompts (1 if None) and what each has in the cache when the step ends
        (`chunk` if None).
      drafts: tokens to verify in each row.
      padded_batch, padded_chunk: what the compiled program runs in place of the batch (decode rows, prompts in prefill) and of the
        chunk. The difference is priced in terms of its own, `StepCost.waste` its share: a padded row is multiplied like any other
        but has nothing in the cache, a padded token of a chunk costs what a live one would.
      dtype: format of the weights, see `costmodel.arch.formats`, or a mapping by component with a "default".
      kv_dtype: format of the cache; of the activations if None.
      activation_dtype, compute: see `costmodel.arch.deployment.Storage.of`.
      tensor_parallel: chips that share every layer; KV heads are held several times where there are fewer of them.
      parameters: of the nominal model, in place of the architecture's own count: 8.0e9 for a round 8B.

    Returns:
      The table of terms, and totals that follow from it.

    Raises:
      UserError: a value out of range, arguments that do not belong to the kind, a degree or dtype that does not fit.
    """
    check_choice("detail", detail, DETAILS)
    request = Request(kind, batch, context, contexts, chunk, prompts, prompt_context, drafts, padded_batch, padded_chunk)
    architecture = as_architecture(config)
    held = Deployment(architecture, Storage.of(dtype, kv_dtype, activation_dtype, compute), tensor_parallel)
    rows = request.rows(architecture.max_positions, architecture.name)
    padded = request.padded(rows)
    if detail == "nominal":
        if padded is not None:
            raise UserError("padded_batch and padded_chunk belong to the full model; the nominal one charges live rows only")
        terms = _nominal(held, rows, parameters)
    elif parameters is not None:
        raise UserError(f"parameters belongs to the nominal model; the full one counts those of {architecture.name}")
    else:
        terms = _full(held, rows)
        if padded is not None:
            terms += padding_terms(terms, _full(held, padded))
    on = find_chip(chip) if isinstance(chip, str) else chip
    if on is not None:
        for term in terms:
            on.peak(term.compute)  # so that a dtype without a peak is refused here and not when the time is asked for
    return StepCost(terms, sum(r.tokens for r in rows), sum(r.count for r in rows), on)


def _full(held: Deployment, rows: Sequence[Rows]) -> tuple[Term, ...]:
    return (*linear_terms(held, rows), *attention_terms(held, rows))


def _nominal(held: Deployment, rows: Sequence[Rows], parameters: Quantity | None) -> tuple[Term, ...]:
    """Idealised: perfectly divided over the chips, scales and replication left out."""
    a, n, default = held.architecture, held.degree, held.storage.weights["default"]
    vectors, width = a.kv_vectors()
    token = vectors * width * held.storage.kv.bits / 8 / n
    kv = sum(token * r.total(r.cached(window)) for window in a.windows for r in rows)
    if parameters is not None:
        check_quantity("parameters", parameters)
    count = real(a.parameter_count if parameters is None else parameters) / n
    return nominal_terms(count, default.bits / 8, kv, sum(r.tokens for r in rows), held.storage.multiplied_in(default))
