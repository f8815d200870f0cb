"""Which programs an engine gets where nobody has computed a ladder for its load, and where somebody has."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax

from costmodel.json_file import read_out
from jaxserve.engine.config import PAGE, EngineConfig
from jaxserve.programs.buckets import Buckets, powers
from models.errors import UserError

# (pieces of prompts that the largest prefill program runs at once, tokens of each). On a CPU 256 tokens are enough to be bound by
# arithmetic, however they are cut, and short pieces pad least: prompts of 80 tokens ran at 430 tokens/s as 16x16 and at 295 as
# 4x64, prompts of 512 at 400 and 430 (scripts/prefill_shapes.py; docs/measurements/2026-11-29-engine.md).
PIECES = {"cpu": (16, 16)}
LONG_PIECES = (4, 256)  # where it takes more of them
MANY = 16  # rows
UNIFORM = 16  # rows of the one program of a batch-invariant engine come in so many: a kernel takes none of them by another way


def read_ladder(file: str | Path) -> Buckets:
    """A ladder that `python -m jaxserve.buckets --out` wrote.

    Raises:
      UserError: the file is missing, can't be read, or holds no ladder.
    """
    return read_out(Path(file), "jaxserve.buckets", Buckets.from_json)


def make_ladder(settings: EngineConfig, rows: int, context: int) -> Buckets:
    """Powers of two: as few programs as serve well, for each takes seconds to compile.

    Decodes of 1, 2, 4, ... `rows`; prefills of a few pieces of prompts and of many. Only where a policy mixes decodes with prompts in
    every step there are programs for both: with all rows and, where they are many, with an eighth of them. A batch-invariant engine
    has one program for everything, see `Buckets.uniform`.
    """
    unit, width = (settings.page_size or PAGE, None) if settings.kv == "paged" else (context, 1)
    widths = (width or -(-context // unit),)
    if settings.batch_invariant:
        fixed = -(-rows // UNIFORM) * UNIFORM
        return Buckets((fixed,), widths, (fixed, 1), unit)
    most, tokens = PIECES.get(jax.default_backend(), LONG_PIECES)
    query = min(tokens, powers(context, smallest=2)[-1])
    pieces = min(most, rows * -(-context // query))
    mixed = (*((rows // 8,) if rows >= MANY else ()), rows) if settings.mixes else ()
    return Buckets(
        batches=tuple(sorted({*(size for size in powers(rows) if size < rows), rows})),
        widths=widths,
        chunk=(pieces, query),
        page=unit,
        prefills=(max(pieces // 4, 1),) if pieces > 1 else (),
        mixed=mixed,
        drafts=_drafts(settings),
        steps=settings.multi_step,
    )


def fitted(settings: EngineConfig, ladder: Buckets, rows: int, context: int) -> Buckets:
    """A given ladder with what the settings ask for beside.

    Raises:
      UserError: it has too few rows, too small tables, or other pages.
    """
    file = settings.ladder
    if rows > ladder.batches[-1]:
        raise UserError(
            f"{file}: the largest batch has {ladder.batches[-1]} rows, not {rows}; lower rows, or compute it for more"
        )
    if context > ladder.context:
        raise UserError(
            f"{file}: its tables hold {ladder.context} tokens, not {context}; lower the context, or compute it for longer sequences"
        )
    if settings.kv == "contiguous":
        ladder = dataclasses.replace(ladder, widths=(1,), page=context)
    elif settings.page_size not in (None, ladder.page):
        raise UserError(f"{file}: its pages have {ladder.page} tokens, not {settings.page_size}; leave page_size out")
    batches, mixed = _up_to(ladder.batches, rows), _up_to(ladder.mixed, rows)
    return dataclasses.replace(ladder, batches=batches, mixed=mixed, drafts=_drafts(settings), steps=settings.multi_step)


def _up_to(sizes: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Those that so many rows can need."""
    return tuple(size for before, size in zip((0, *sizes), sizes, strict=False) if before < rows)


def _drafts(settings: EngineConfig) -> int:
    """That programs verify: none where nobody makes any."""
    return settings.drafter.drafts if settings.drafter else 0
