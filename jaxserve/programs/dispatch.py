"""Which programs a plan runs in, and with which rows: `prepare_inputs.py` makes arrays of it, `predict` prices it.

Rows that run one token go into a decode, drafts into a verify segment, prompts are cut into pieces of what a prefill program takes.
Several pieces of one prompt may lie side by side in a program, for every layer writes the K and V of all of them before any attends;
so may a prompt and one that shares pages of it. Pieces for which there is no place run in programs of their own, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.scheduling.plan import Plan


class Piece(NamedTuple):
    """Part of a prompt: `tokens` after `start` that are in the cache, of a row of the plan."""

    start: int
    tokens: int
    row: int


class Run(NamedTuple):
    """One program of a plan.

    Attributes:
      bucket: what it is compiled for; None where any shape is.
      rows: of the plan, those that decode.
      starts: tokens in the cache of each of them.
      counts: tokens that each of them runs, drafts to verify included; None for 1 each.
      pieces: of prompts.
      steps: so often it runs, each row that decodes with one token more.
    """

    bucket: Bucket | None
    rows: Sequence[int]
    starts: Sequence[int]
    counts: Sequence[int] | None
    pieces: Sequence[Piece]
    steps: int = 1


def dispatch(plan: Plan, ladder: Buckets | None = None) -> list[Run]:
    """The programs of a plan that has rows, in order. Without a ladder it is one that fits.

    Raises:
      UserError: a row or a table for which the ladder has no program.
    """
    if ladder is not None and ladder.uniform:
        return _uniform(plan, ladder)
    count = len(plan.ids)
    rows: Sequence[int] = range(count)
    if plan.steps > 1:
        bucket = ladder.repeated(count, max(plan.starts) + plan.steps) if ladder else None
        return [Run(bucket, rows, plan.starts, None, (), plan.steps)]
    starts, counts, pieces = plan.starts, None, []
    longest = max(starts) + 1
    if plan.tokens > count:  # else all run one token, which prompts of one do like rows that decode
        many = [i for i, tokens in enumerate(plan.counts) if tokens > 1]
        longest = max(longest, *[plan.starts[i] + plan.counts[i] for i in many])
        prompts = {i for i in many if plan.draws[i] <= 1}
        verifying = len(prompts) < len(many)
        if (
            prompts
        ):  # a new row whose last token alone is to be run may read pages that they fill, so it must not run before them
            new = set(plan.admitted)
            prompts |= {i for i in rows if plan.ids[i] in new and plan.starts[i]}
        rows = [i for i in rows if i not in prompts]
        starts = tuple([plan.starts[i] for i in rows])
        if verifying:
            counts = tuple([plan.counts[i] for i in rows])
        query = ladder.chunk[1] if ladder else plan.tokens
        pieces = [piece for i in sorted(prompts) for piece in cut(plan.starts[i], plan.counts[i], query, i)]
    if ladder is None:
        return [Run(None, rows, starts, counts, pieces)]
    found = []
    if starts:
        verify = counts is not None
        both = ladder.together(len(starts), len(pieces), longest, verify=verify) if pieces else None
        if both is not None:
            here, pieces = pieces[: both.shape[1][0]], pieces[both.shape[1][0] :]
            found.append(Run(both, rows, starts, counts, here))
        else:
            bucket = ladder.verify(len(starts), longest) if verify else ladder.decode(len(starts), longest)
            found.append(Run(bucket, rows, starts, counts, ()))
    while pieces:
        bucket = ladder.prefill(longest, len(pieces))
        here, pieces = pieces[: bucket.shape[0][0]], pieces[bucket.shape[0][0] :]
        found.append(Run(bucket, (), (), None, here))
    return found


def _uniform(plan: Plan, ladder: Buckets) -> list[Run]:
    """Every token is a piece of one, in the order of the plan, as many in each program as it has rows."""
    pieces = [
        piece for row, (at, count) in enumerate(zip(plan.starts, plan.counts, strict=True)) for piece in cut(at, count, 1, row)
    ]
    rows, bucket = ladder.batches[0], ladder.decode(1, max(map(sum, zip(plan.starts, plan.counts, strict=True))))
    return [Run(bucket, (), (), None, pieces[i : i + rows]) for i in range(0, len(pieces), rows)]


def cut(start: int, count: int, query: int, row: int) -> list[Piece]:
    """So many tokens of a prompt in pieces of at most `query`."""
    return [Piece(at, min(query, start + count - at), row) for at in range(start, start + count, query)]
