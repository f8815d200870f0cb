"""Time of an attention kernel over pieces of prompts, causal, 16-bit, on a GPU.

Queries and keys are multiplied in tiles of `TILE` x `TILE`; on the diagonal a tile computes what the mask then hides. Queries, K, V and
results are moved beside, at a rate of their own, and what finds a token's place in the paged cache does not depend on heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from costmodel.calibration.device import Device
from costmodel.calibration.form import Features, Spec, Values

ITEM = 2  # B of an element
TILE = 64  # queries, and keys


@dataclasses.dataclass(frozen=True)
class PrefillAttention:
    """Features: heads, kv_heads, head_dim; of all pieces together tokens, read (cached tokens), pairs (of query and key that are seen) and
    tiled (pairs that tiles compute); see `pieces`.
    """

    name: ClassVar[str] = "prefill attention"
    specs: ClassVar[tuple[Spec, ...]] = (
        Spec("launch", "s", 11e-6, "of the kernels, however little they compute", "short prompts"),
        Spec("bandwidth", "", 0.5, "of the memory's bandwidth that queries, K, V and results move at", "many short prompts"),
        Spec("peak", "", 0.7, "of the dense peak that tiles reach", "long prompts"),
        Spec("token", "s", 1e-9, "of every token, however few heads there are", "many prompts of few heads"),
    )

    def seconds(self, values: Values, features: Features, device: Device, xp: Any) -> Any:
        """s [points]; see the module."""
        heads, head_dim, tokens, tiled = (
            xp.asarray(features[name], float) for name in ("heads", "head_dim", "tokens", "tiled")
        )
        compute = 4 * head_dim * heads * tiled / (values["peak"] * device.peak)
        moving = moved_bytes(features, xp) / (values["bandwidth"] * device.bandwidth)
        return values["launch"] + compute + moving + tokens * values["token"]

    def roofline(self, features: Features, device: Device) -> Any:
        heads, head_dim, pairs = (np.asarray(features[name], float) for name in ("heads", "head_dim", "pairs"))
        return np.maximum(moved_bytes(features, np) / device.bandwidth, 4 * head_dim * heads * pairs / device.peak)


def moved_bytes(features: Features, xp: Any) -> Any:
    """B of queries and results, and of K and V, each once."""
    heads, kv_heads, head_dim, tokens, read = (
        xp.asarray(features[name], float) for name in ("heads", "kv_heads", "head_dim", "tokens", "read")
    )
    return 2 * ITEM * head_dim * (heads * tokens + kv_heads * read)


def pieces(of: Sequence[tuple[int, int]]) -> dict[str, float]:
    """The features of pieces (tokens in the cache before, tokens to run) that run in one kernel: all but heads and head_dim."""
    found = dict.fromkeys(("tokens", "read", "pairs", "tiled"), 0.0)
    for start, count in of:
        # The i-th tile of queries ends at query (i+1) TILE, or at the last, and computes whole tiles of keys up to there.
        ends = range(start + TILE, start + count + TILE, TILE)
        found["tokens"] += count
        found["read"] += start + count
        found["pairs"] += count * (start + (count + 1) / 2)
        found["tiled"] += sum([-(-min(end, start + count) // TILE) for end in ends]) * TILE * TILE
    return found
