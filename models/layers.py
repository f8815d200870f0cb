"""Running a model's layers over the segments of a step: unrolled, or as one scan over stacked weights.

Unrolled, each layer has its own pool array and weights; a CPU and a GPU run that fastest (a GPU under scan first copies each layer's
weights out of the stack). Scanned, one flat pool is carried and one stack of weights sliced; a TPU folds the slice into the matmul,
and the program is one layer long.

Every operation stands in a named scope that says which component it belongs to (embed, norm, qkv, rope, kv_write, kv_read, scores,
softmax, values, out, gate_up, down, head, sample): XLA carries the scopes through to the optimised program, where the cost model
reads them. Around them stand `layer0`, `layer1`, ... where layers are unrolled, and `attention/segment0`, ...
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from models.attention import Rule
from models.config.model_config import ModelConfig
from models.kv_cache import ContiguousKV, PagedKV
from models.segment import Segment
from models.transformer import Transformer, abstract

KV = PagedKV | ContiguousKV
Angles = dict[str, jax.Array]  # cos and sin of the step's tokens, f32 [tokens, 2, head_dim / 2], by kind of layer: full, local

NO_WINDOW = 2**30  # under scan every layer has a window


class Mixer:
    """Attention of one layer over all segments, as the module wants it; keeps the written cache in `kv`."""

    def __init__(self, kv: KV, layer: int | jax.Array, segments: tuple[Segment, ...], rule: Rule):
        self.kv, self.layer, self.segments, self.rule = kv, layer, segments, rule

    def __call__(self, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        """q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim] -> as q."""
        spans, at = [], 0
        for s in self.segments:
            spans.append((s, at, at + s.size))
            at += s.size
        with jax.named_scope("kv_write"):
            for s, a, b in spans:
                self.kv = self.kv.write(self.layer, k[a:b], v[a:b], s)
        with jax.named_scope("attention"):
            mixed = []
            for i, (s, a, b) in enumerate(spans):
                with jax.named_scope(f"segment{i}"):
                    with jax.named_scope("scores"):
                        part = q[a:b]
                    mixed.append(self.kv.attend(self.layer, part, s, self.rule))
            with jax.named_scope("values"):
                return jnp.concatenate(mixed)


def run_layers(
    model: Transformer,
    config: ModelConfig,
    x: jax.Array,
    angles: Angles,
    segments: tuple[Segment, ...],
    kv: KV,
    *,
    stacked: bool,
) -> tuple[jax.Array, KV]:
    """x f32 [tokens, hidden] through all layers, with the cache written on the way.

    Args:
      model: the merged module; where `stacked`, its one layer holds the weights of all, along a first axis.
      stacked: scan. The pool must be stacked too.
    """
    rules = [Rule(config.attention_scale, config.attention_softcap, window) for window in config.windows]
    local = [config.layer_rope(i) is config.rope_local for i in range(config.layers)]
    if not stacked:
        for i, block in enumerate(model.layers):
            with jax.named_scope(f"layer{i}"):
                mixer = Mixer(kv, i, segments, rules[i])
                x = block(x, angles["local" if local[i] else "full"], mixer)
                kv = mixer.kv
        return x, kv

    graph, weights = nnx.split(model.layers[0])
    windows = jnp.array([NO_WINDOW if w is None else w for w in config.windows], jnp.int32)
    windowed = any(w is not None for w in config.windows)

    def layer(carry: tuple[jax.Array, KV], each: tuple[Any, ...]) -> tuple[tuple[jax.Array, KV], None]:
        (x, kv), (state, index, window, is_local) = carry, each
        mixer = Mixer(kv, index, segments, Rule(config.attention_scale, config.attention_softcap, window if windowed else None))
        with jax.named_scope("rope"):
            turn = jnp.where(is_local, angles["local"], angles["full"]) if "local" in angles else angles["full"]
        return (nnx.merge(graph, state)(x, turn, mixer), mixer.kv), None

    with jax.named_scope("kv_read"):
        index = jnp.arange(config.layers)
    (x, kv), _ = jax.lax.scan(layer, (x, kv), (weights, index, windows, jnp.array(local)))
    return x, kv


def stack_layers(
    config: ModelConfig, weights: dict[tuple[Any, ...], nnx.Variable]
) -> tuple[nnx.GraphDef[Transformer], nnx.State]:
    """The weights of all layers as one, each along a new first axis, and the graph that goes with them.

    Args:
      weights: the flat state of the unrolled module. It is emptied, one weight at a time, so that no second copy is ever held.
    """
    graph, wanted = nnx.split(abstract(config.first_layer()))
    stacked = []
    for path, variable in nnx.to_flat_state(wanted):
        if path[0] == "layers":
            value = jnp.stack([weights.pop(("layers", i, *path[2:])).get_value() for i in range(config.layers)])
        else:
            value = weights.pop(path).get_value()
        stacked.append((path, variable.replace(value)))
    return graph, nnx.from_flat_state(stacked)
