"""How often the loops of a step run whose bound is data: what no compiler can know, and what pricing a program needs."""

from __future__ import annotations

from collections.abc import Sequence

from models.config.model_config import ModelConfig
from models.layers import KV
from models.segment import Segment


def loop_trips(config: ModelConfig, kv: KV, segments: Sequence[Segment], *, stacked: bool) -> dict[str, float]:
    """Iterations of each loop of blockwise attention in one step.

    Args:
      config: for the windows of its layers.
      kv: only shapes are looked at, so an abstract cache serves.
      segments: host arrays.
      stacked: whether the step scans over its layers.

    Returns:
      Iterations by the scopes that a loop stands in: "layer0/attention/segment0", ... or, where layers are scanned, the mean over them as
      "attention/segment0" (a fraction only where layers have different windows). Empty under gather: no loop.
    """
    if kv.attention == "gather":
        return {}
    counts: dict[str, float] = {}
    for i, segment in enumerate(segments):
        by_window = {window: kv.trips(segment, window) for window in set(config.windows)}
        each = [by_window[window] for window in config.windows]
        if stacked:
            counts[f"attention/segment{i}"] = sum(each) / len(each)
        else:
            counts |= {f"layer{layer}/attention/segment{i}": count for layer, count in enumerate(each)}
    return counts
