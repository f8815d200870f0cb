"""What each figure of a step costs: the factors of `costmodel.step_cost`, taken once from steps small and large.

Bytes and FLOPs of a step are linear in: 1; experts met; tokens; samples; and, for rows that decode and for pieces of prompts, the tokens
that enter the cache and, for each kind of layer, the cached tokens that are read and the pairs of query and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodel.analytical.step import step_cost
from costmodel.analytical.terms import StepCost
from costmodel.arch.architecture import Architecture

_PROBES = 64  # steps of each kind; more than there are figures, so that a figure that is missing shows


class Factors(NamedTuple):
    """Seconds for each figure; empty where no figure costs any."""

    memory: tuple[float, ...]
    compute: tuple[float, ...]
    link: tuple[float, ...]


def attended(rows: Sequence[tuple[int, int]], windows: Sequence[int | None]) -> list[float]:
    """The figures of attention of rows of (tokens in the cache before, tokens to run); see
    `costmodel.analytical.rows.Rows.cached` and `pairs`.

    Returns:
      Tokens that enter the cache, then cached tokens that are read and pairs for each window.
    """
    sums: list[float] = [sum([count for _, count in rows])]
    for window in windows:
        read = pairs = 0.0
        for start, count in rows:
            if window is None:
                read += start + count
                pairs += count * (start + (count + 1) / 2)
            else:
                read += min(start + count, window + count - 1)
                short = min(max(window - start, 0), count)
                pairs += short * (start + (short + 1) / 2) + (count - short) * window
        sums += [read, pairs]
    return sums


def factors(architecture: Architecture, priced: Mapping[str, Any]) -> Factors:
    """Those of a model.

    Args:
      priced: chip and formats, as `step_cost` takes them.

    Raises:
      UserError: as `step_cost`.
    """
    draw, most = np.random.default_rng(0), architecture.max_positions
    windows = tuple(dict.fromkeys(architecture.windows))

    def sizes(least: int, largest: int) -> np.ndarray:
        """As many small as large: experts are met at few tokens, windows at many."""
        return np.exp(draw.uniform(np.log(least), np.log(largest + 1), _PROBES)).astype(int)

    def line(rows: int, decode: tuple[int, int], prompts: int, piece: tuple[int, int], empty: int, every: bool) -> list[float]:
        met_by = rows * decode[1] + prompts * piece[1] + empty
        met = float(architecture.experts.distinct(met_by)) if architecture.experts else 0.0
        samples = rows * (decode[1] if every else 1) + prompts + empty
        figures = [rows * figure for figure in attended([decode], windows)]
        return [1.0, met, met_by, samples, *figures, *(prompts * figure for figure in attended([piece], windows))]

    batch, prompts, context, empty = sizes(1, 300), sizes(1, 8), sizes(1, most), sizes(1, 100)
    chunk = sizes(2, min(2048, most))
    held = np.minimum(chunk + (sizes(1, most) - 1) * draw.integers(0, 2, _PROBES), most)
    mixed = step_cost(
        architecture,
        kind="mixed",
        batch=batch,
        context=context,
        prompts=prompts,
        chunk=chunk,
        prompt_context=held,
        padded_batch=batch + empty,
        **priced,
    )
    table = [
        line(b, (s - 1, 1), p, (h - c, c), e, False)
        for b, s, p, c, h, e in np.stack([batch, context, prompts, chunk, held, empty], 1).tolist()
    ]
    query = sizes(2, min(16, most))
    context = np.maximum(context, query)
    verify = step_cost(architecture, kind="verify", batch=batch, context=context, drafts=query - 1, **priced)
    table += [line(b, (s - q, q), 0, (0, 1), 0, True) for b, s, q in np.stack([batch, context, query], 1).tolist()]
    figures = np.array(table, np.float64)
    return Factors(*(solve(figures, np.concatenate(each)) for each in zip(_roofs(mixed), _roofs(verify), strict=True)))


def solve(table: np.ndarray, wanted: np.ndarray) -> tuple[float, ...]:
    """The x of table @ x = wanted; () where all is 0.

    Raises:
      RuntimeError: there is none.
    """
    if not wanted.any():
        return ()
    scale = np.abs(table).max(0)
    used = scale > 0
    found = np.zeros(table.shape[1])
    found[used] = np.linalg.lstsq(table[:, used] / scale[used] / wanted[:, None], np.ones(len(wanted)))[0] / scale[used]
    if not np.allclose(table @ found, wanted, rtol=1e-9, atol=0):
        raise RuntimeError(
            "the cost of a step depends on more figures than jaxserve.predict.step_features has; add what is missing"
        )
    return tuple(found.tolist())


def _roofs(cost: StepCost) -> list[np.ndarray]:
    """Seconds of memory, compute and links of each probe."""
    seconds = (cost.memory_seconds(), cost.compute_seconds(), cost.link_seconds())
    return [np.broadcast_to(np.asarray(each, np.float64), (_PROBES,)) for each in seconds]
