"""Time of an attention kernel in which every row has one query (decode), over a 16-bit paged cache, on a GPU.

Every (row, KV head) is a task; the cores share them out evenly. Where there are fewer tasks than cores each is split into parts of at least
`PART` tokens, which are merged in pairs (flash decoding, Dao et al. 2023). Reading overlaps with the tasks' other work in part.

A cache that was read a moment ago and fits the chip's last cache is read from there: so it is where one kernel is timed over and over,
and never in a step of a model, whose weights pass between. There features say that it is `cold`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from costmodel.calibration.device import Device
from costmodel.calibration.form import Features, Spec, Values

ITEM = 2  # B of an element
PART = 128  # tokens
EDGE = 4.0  # how sharply hits give way to misses as what is read outgrows the cache


@dataclasses.dataclass(frozen=True)
class DecodeAttention:
    """Features: batch; heads, kv_heads, head_dim; context, tokens that each row attends to; cold, 1 where nothing is in the last cache."""

    name: ClassVar[str] = "decode attention"
    specs: ClassVar[tuple[Spec, ...]] = (
        Spec("launch", "s", 11e-6, "of the kernels, however little they read", "small batches and short contexts"),
        Spec("bandwidth", "", 0.9, "of the memory's bandwidth that a large cache is read at", "KV far beyond the last cache"),
        Spec("cache gain", "", 1.0, "by how much faster KV in the last cache is read", "KV of 10 MB up to the last cache"),
        Spec("cache share", "", 0.8, "of the last cache that KV may fill and stay there", "KV around the last cache's size"),
        Spec("task", "s", 3e-6, "of a core for each (row, KV head), beside reading", "large batches of short contexts"),
        Spec(
            "exposed",
            "",
            0.5,
            "of the shorter of tasks and reading, not hidden by the longer",
            "large batches of middling contexts",
        ),
        Spec("merge", "s", 0.8e-6, "of merging the parts of a task, each time they double", "few rows of long contexts"),
    )

    def seconds(self, values: Values, features: Features, device: Device, xp: Any) -> Any:
        """s [points]; see the module."""
        batch, kv_heads, context, cold = (
            xp.asarray(features[name], float) for name in ("batch", "kv_heads", "context", "cold")
        )
        read = kv_bytes(features, xp)
        within = (1.0 - cold) / (1.0 + (read / (values["cache share"] * device.cache)) ** EDGE)
        slower = 1.0 - within + within / (1.0 + values["cache gain"])
        reading = slower * read / (values["bandwidth"] * device.bandwidth)
        tasks = batch * kv_heads
        work = tasks / device.units * values["task"]
        parts = xp.maximum(xp.minimum(device.units / tasks, xp.ceil(context / PART)), 1.0)
        both = xp.maximum(reading, work) + values["exposed"] * xp.minimum(reading, work)
        return values["launch"] + both + values["merge"] * xp.log2(parts)

    def roofline(self, features: Features, device: Device) -> Any:
        batch, heads, head_dim, context = (
            np.asarray(features[name], float) for name in ("batch", "heads", "head_dim", "context")
        )
        return np.maximum(kv_bytes(features, np) / device.bandwidth, 4 * batch * heads * head_dim * context / device.peak)


def kv_bytes(features: Features, xp: Any) -> Any:
    """B of K and V that all rows read, and of queries and results."""
    batch, heads, kv_heads, head_dim, context = (
        xp.asarray(features[name], float) for name in ("batch", "heads", "kv_heads", "head_dim", "context")
    )
    return 2 * ITEM * batch * head_dim * (context * kv_heads + heads)
