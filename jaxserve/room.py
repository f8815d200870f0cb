"""How much KV an engine may hold: enough for all its rows, if memory is not the limit. Nothing is allocated here."""

from __future__ import annotations

import dataclasses
from typing import Literal, cast

import jax

from jaxserve.memory import available_bytes, pool_bytes, weight_bytes, workspace_bytes
from jaxserve.pool import Pool
from jaxserve.serve_settings import ServeSettings
from models.config import ModelConfig
from models.errors import UserError

SHARES = {"cpu": 0.5}  # of free memory that a pool takes unasked; a host has other things to do with it
SHARE = 0.9  # on a device


@dataclasses.dataclass(frozen=True)
class Room:
    """The KV memory of an engine.

    Attributes:
      pool: of each worker.
      reason: why it has that size, for the user.
      needed: B of weights, pools and workspace, an estimate from above.
    """

    pool: Pool
    reason: str
    needed: int


def make_room(
    settings: ServeSettings, config: ModelConfig, dtype: str, *, rows: int, context: int, page: int, chunk: int
) -> Room:
    """The pool that settings ask for, or the one that fits.

    Args:
      dtype: of the weights, and of K and V where nothing else is said.
      rows: sequences that run at once on each worker.
      context: tokens of the longest.
      page: tokens of a page; passed over where KV is contiguous.
      chunk: tokens of the largest prefill program.

    Raises:
      UserError: it doesn't fit.
    """
    paged, stored = settings.kv == "paged", settings.kv_dtype or dtype
    unit, what = (page, "pages") if paged else (context, "slots")
    each = -(-context // unit)  # units of the longest sequence
    weights = weight_bytes(config, dtype)[1]
    drafts = settings.drafter.drafts if settings.drafter else 0
    workspace = workspace_bytes(config, rows * (1 + drafts), chunk)
    size = pool_bytes(config, 1, unit, stored) * settings.workers
    free = available_bytes()
    left, wanted = free - weights - workspace, settings.pages or rows * each
    share = SHARES.get(jax.default_backend(), SHARE)
    units, reason = wanted, f"enough for {rows} sequences of {context} tokens"
    if settings.pages is not None:
        reason = f"as asked: {units / each:.3g} sequences of {context} tokens"
    elif (most := max(int(left * share), 0) // size) < wanted:
        units, reason = most, f"{share:.0%} of the free memory: {most / each:.3g} sequences of {context} tokens, not {rows}"
    needed = weights + workspace + units * size
    if needed > free or units < (1 if settings.pages else each):
        needed = max(needed, weights + workspace + each * size)
        gb = [f"{x / 1e9:.1f} GB" for x in (needed, weights, needed - weights - workspace, workspace, free)]
        smaller = "a smaller model" if dtype == "bfloat16" else "a smaller model or dtype bfloat16"
        raise UserError(
            f"this engine needs about {gb[0]} of memory ({gb[1]} weights in {dtype}, {gb[2]} KV pool, {gb[3]} workspace), but {gb[4]} "
            f"are available; lower {'pages' if settings.pages else 'context'} or rows, or take {smaller}"
        )
    kind = cast(Literal["paged", "contiguous"], settings.kv)
    pool = Pool(units, unit, stored, kind, prefix=settings.remembers)
    of = f" on each of {settings.workers} workers" if settings.workers > 1 else ""
    return Room(pool, f"{units} {what} of {unit} tokens{of}, {reason}", needed)
