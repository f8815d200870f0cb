"""One pass of the model over the segments of a step, without sampling: tokens in, the cache and the logits out.

Decode, a prefill chunk, a mixed batch and the verification of a draft are the same function with other segments. Linear layers run
once over the tokens of all segments, so the weights are read once; only attention looks at segments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
from flax import nnx

from models import rotary
from models.config.model_config import ModelConfig
from models.layers import KV, run_layers
from models.segment import Segment
from models.transformer import Transformer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Serving:
    """The arrays that a step reads and never changes. Made once by `serving`."""

    weights: nnx.State  # of `Transformer`; under scan its layers are one block of stacked arrays
    angles: dict[str, jax.Array]  # cos and sin of every position of the run, f32 [context, 2, head_dim / 2], by kind of layer


def serving(config: ModelConfig, weights: nnx.State, context: int) -> Serving:
    """The read-only arguments of a step for sequences of up to `context` tokens."""
    angles = {"full": jnp.asarray(rotary.table(config.rope, config.head_dim, context))}
    if config.rope_local is not None:
        angles["local"] = jnp.asarray(rotary.table(config.rope_local, config.head_dim, context))
    return Serving(weights, angles)


def forward(
    graph: nnx.GraphDef[Transformer],
    config: ModelConfig,
    serving: Serving,
    kv: KV,
    segments: tuple[Segment, ...],
    *,
    every_token: bool | tuple[bool, ...] = False,
    stacked: bool = False,
) -> tuple[KV, tuple[jax.Array, ...]]:
    """Run the model over all segments.

    Args:
      graph: the module's structure, `nnx.split` of it once; merged with the weights inside the traced function.
      config: the architecture.
      serving: weights and rotary tables.
      kv: the cache; donate it.
      segments: their table entries must be pages (or slots) that no other live row writes.
      every_token: logits after every query token (verifying a draft) and not only after the last live one of each row; one answer
        for all segments, or one for each.
      stacked: scan over the layers; see `layers.py`.

    Returns:
      The cache with the new tokens' K and V, and for each segment its logits f32 [rows * picked, vocab], where `picked` is 1 or,
      with its `every_token`, the query.

    Raises:
      AssertionError: a segment's arrays don't fit each other (`Segment.check`).
    """
    for segment in segments:
        segment.check()
    model = nnx.merge(graph, serving.weights)
    with jax.named_scope("embed"):
        tokens = jnp.concatenate([s.tokens.ravel() for s in segments])
    with jax.named_scope("rope"):
        positions = jnp.concatenate([s.positions().ravel() for s in segments])
        # Padding may stand past the end of the table; it is clipped.
        angles = {kind: table.at[positions].get(mode="clip") for kind, table in serving.angles.items()}
    x = model.embedding(tokens)
    chex.assert_shape(x, (len(tokens), config.hidden))
    x, written = run_layers(model, config, x, angles, segments, kv, stacked=stacked)
    chex.assert_trees_all_equal_shapes_and_dtypes(kv, written)  # or the donated pool could not be written in place
    with jax.named_scope("head"):
        picked, counts = _pick(x, segments, every_token)
    logits = model.logits(picked)
    outputs, at = [], 0
    for count in counts:
        with jax.named_scope("head"):
            outputs.append(logits[at : at + count])
        at += count
    return written, tuple(outputs)


def _pick(x: jax.Array, segments: tuple[Segment, ...], every_token: bool | tuple[bool, ...]) -> tuple[jax.Array, list[int]]:
    """The rows of x [tokens, hidden] after which logits are wanted, and how many each segment has of them."""
    every = (every_token,) * len(segments) if isinstance(every_token, bool) else every_token
    whole = [wanted or s.query == 1 for s, wanted in zip(segments, every, strict=True)]
    if all(whole):  # all tokens, in order
        return x, [s.size for s in segments]
    picked, first = [], 0
    for s, wanted in zip(segments, whole, strict=True):
        at = jnp.arange(s.size) if wanted else jnp.arange(s.rows) * s.query + jnp.maximum(s.count - 1, 0)
        picked.append(first + at)
        first += s.size
    return x[jnp.concatenate(picked)], [len(at) for at in picked]


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
