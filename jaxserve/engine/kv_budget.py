"""How much KV an engine may hold: enough for all its rows, if memory is not the limit. Nothing is allocated here."""

from __future__ import annotations

import dataclasses
from typing import Literal, cast

import jax

from jaxserve.engine.config import EngineConfig
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.memory import MemoryNeed, available_bytes, pool_bytes
from models.checkpoint.base import Checkpoint, RandomCheckpoint

SHARES = {"cpu": 0.5}  # of free memory that a pool takes unasked; a host has other things to do with it
SHARE = 0.9  # on a device


@dataclasses.dataclass(frozen=True)
class KVBudget:
    """The KV memory of an engine.

    Attributes:
      pool: of each worker.
      reason: why it has that size, for the user.
      need: memory that the engine takes.
    """

    pool: KVLayout
    reason: str
    need: MemoryNeed


def kv_budget(
    settings: EngineConfig,
    checkpoint: Checkpoint | RandomCheckpoint,
    dtype: str,
    *,
    rows: int,
    context: int,
    ladder: Buckets,
) -> KVBudget:
    """The pool that settings ask for, or the one that fits.

    Args:
      dtype: of the weights, and of K and V where nothing else is said.
      rows: sequences that run at once on each worker.
      context: tokens of the longest.
      ladder: the programs.

    Raises:
      UserError: it doesn't fit.
    """
    paged, stored = settings.kv == "paged", settings.kv_dtype or dtype
    unit, what = (ladder.page, "pages") if paged else (context, "slots")
    each = -(-context // unit)  # units of the longest sequence
    pieces, query = ladder.chunk
    drafts = settings.drafter.drafts if settings.drafter else 0
    need = MemoryNeed.of(
        checkpoint,
        dtype,
        pool=0,
        rows=rows * (1 + drafts),
        chunk=pieces * query,
        programs=len(ladder.buckets()),
        layers=settings.layers,
    )
    size = pool_bytes(checkpoint.config, 1, unit, stored) * settings.workers
    left, wanted = available_bytes() - need.total, settings.pages or rows * each
    share = SHARES.get(jax.default_backend(), SHARE)
    units, reason = wanted, f"enough for {rows} sequences of {context} tokens"
    if settings.pages is not None:
        reason = f"as asked: {units / each:.3g} sequences of {context} tokens"
    elif (most := max(int(left * share), 0) // size) < wanted:
        units, reason = most, f"{share:.0%} of the free memory: {most / each:.3g} sequences of {context} tokens, not {rows}"
        if most < each:
            units, reason = (
                each,
                f"one sequence of {context} tokens, for which more than {share:.0%} of the free memory is taken",
            )
    need = need._replace(pool=units * size)
    need.check("this engine", dtype, f"{'pages' if settings.pages else 'context'} or rows")
    kind = cast(Literal["paged", "contiguous"], settings.kv)
    pool = KVLayout(units, unit, stored, kind, prefix=settings.remembers)
    of = f" on each of {settings.workers} workers" if settings.workers > 1 else ""
    return KVBudget(pool, f"{units} {what} of {unit} tokens{of}, {reason}", need)
