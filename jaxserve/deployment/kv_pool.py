"""The KV memory of a deployment: what is beside it on the chips, and the pool that is asked for or left."""

from __future__ import annotations

from costmodel.capacity import ENTRY, Fit, Pool, fit
from costmodel.sizing import Placement
from models.errors import UserError


def memory_besides_kv(placement: Placement, kv_pool: float | None, rows: int, tokens: int, reserve: float) -> Fit:
    """What is beside the KV pool, and whether that fits with it.

    Args:
      kv_pool: B of all chips together; None where it is yet to be seen what is left.
      rows, tokens: sequences and tokens of the largest step.
      reserve: share of a chip's memory that is left to others.
    """
    return fit(
        placement.model,
        placement.chip,
        pool=float(kv_pool or 0),
        tensor_parallel=placement.degree,
        dtype=placement.dtype,
        kv_dtype=placement.kv_dtype,
        rows=rows,
        tokens=tokens,
        reserve=reserve,
    )


def pool_of(placement: Placement, found: Fit, kv_pool: float | None, page: int, headroom: float) -> Pool:
    """The pool that was asked for, or all that is left. Raises UserError where nothing is.

    Args:
      page: tokens of a page.
      headroom: share of the pages that is kept free.
    """
    size = float(kv_pool or found.room)
    if not size > 0:
        raise UserError(f"{found.verdict}; without --kv-pool the pool is what weights leave, and they leave nothing")
    return placement.pool(size, page, entry=ENTRY, headroom=headroom)
