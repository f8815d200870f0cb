"""Every weight of a model, with its shape and its component: read from the abstract state of the Flax module."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from flax import nnx

from models.config.model_config import ModelConfig
from models.transformer import abstract


@dataclasses.dataclass(frozen=True)
class Weight:
    """Weights of one shape: [outputs, inputs] of a matrix, [size] of a norm or bias.

    Attributes:
      component: in the vocabulary that all witnesses share: embed, norm, qkv, out, gate_up, down, router, experts, head.
      count: how many of this shape the model has, over all layers and experts.
      split: what tensor parallelism divides it by: heads, kv_heads, ffn or vocab; None where every chip holds all of it.
      axis: the axis of `shape` that is divided.
      routed: a token meets only the experts that the router picks for it.
    """

    component: str
    name: str
    shape: tuple[int, ...]
    count: int = 1
    split: str | None = None
    axis: int = 0
    routed: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape) * self.count


# Where a parameter of `models.transformer` belongs, by its path without the layer: component, split, axis.
_MODULE: Mapping[tuple[str, ...], tuple[str, str | None, int]] = {
    ("embed",): ("embed", "vocab", 0),
    ("head",): ("head", "vocab", 0),
    ("norm", "scale"): ("norm", None, 0),
    ("attention_norm", "scale"): ("norm", None, 0),
    ("attention_post_norm", "scale"): ("norm", None, 0),
    ("mlp_norm", "scale"): ("norm", None, 0),
    ("mlp_post_norm", "scale"): ("norm", None, 0),
    ("attention", "q_norm", "scale"): ("norm", None, 0),
    ("attention", "k_norm", "scale"): ("norm", None, 0),
    ("attention", "qkv"): ("qkv", "heads", 0),
    ("attention", "qkv_bias"): ("qkv", "heads", 0),
    ("attention", "out"): ("out", "heads", 1),
    ("attention", "out_bias"): ("out", None, 0),
    ("mlp", "gate_up"): ("gate_up", "ffn", 0),
    ("mlp", "gate_up_bias"): ("gate_up", "ffn", 0),
    ("mlp", "down"): ("down", "ffn", 1),
    ("mlp", "down_bias"): ("down", None, 0),
}


def module_weights(config: ModelConfig) -> tuple[Weight, ...]:
    """All weights of `models.transformer.Transformer`, those of one shape and place together. No memory is taken.

    One layer is described and counted `config.layers` times, for all blocks of the module are made alike.
    """
    counts: collections.Counter[Weight] = collections.Counter()
    for path, variable in nnx.to_flat_state(nnx.state(abstract(config.first_layer()))):
        for weight in place(config, path, tuple(variable.get_value().shape)):
            counts[weight] += config.layers if path[0] == "layers" else 1
    return tuple(dataclasses.replace(weight, count=count) for weight, count in counts.items())


def place(config: ModelConfig, path: tuple[Any, ...], shape: tuple[int, ...]) -> list[Weight]:
    """A parameter of the module as weights: one, or the query and the KV rows of the fused qkv apart, for they divide differently.

    Raises:
      ValueError: a parameter that belongs to no component, which would otherwise be free of cost.
    """
    key = tuple(str(part) for part in path if part != "layers" and not isinstance(part, int))
    if key not in _MODULE:
        raise ValueError(
            f"parameter {'.'.join(map(str, path))} belongs to no component of the cost model; add it to {__name__}"
        )
    component, split, axis = _MODULE[key]
    name = ".".join(part for part in key if part != "scale")
    if key[-1] not in ("qkv", "qkv_bias"):
        return [Weight(component, name, shape, 1, split, axis)]
    queries = config.heads * config.head_dim
    return [
        Weight(component, f"{name}.q", (queries, *shape[1:]), 1, "heads", axis),
        Weight(component, f"{name}.kv", (shape[0] - queries, *shape[1:]), 1, "kv_heads", axis),
    ]
