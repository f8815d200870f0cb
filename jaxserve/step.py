"""The one pure step: tokens of all segments in, the cache and each row's next token out.

Decode, a prefill chunk, a mixed batch and the verification of a draft are the same function with other segments. Linear layers run
once over the tokens of all segments, so the weights are read once; only attention and sampling look at segments.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from jaxserve.layers import KV, run_layers
from jaxserve.sampling import RowSampling, sample
from models import rotary
from models.config import ModelConfig
from models.segment import Segment
from models.transformer import Transformer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Work:
    """One segment of a step, and how its next tokens are drawn."""

    segment: Segment
    sampling: RowSampling


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Output:
    """What a step says of one segment. `sampled` is 1 (after the last live token of each row) or, for a verify step, the query."""

    tokens: jax.Array  # i32 [rows, sampled]: the token that follows
    logits: jax.Array | None  # f32 [rows * sampled, vocab], only where the step was asked for them


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Serving:
    """The arrays that a step reads and never changes. Made once by `serving`."""

    weights: nnx.State  # of `Transformer`; under scan its layers are one block of stacked arrays
    angles: dict[str, jax.Array]  # cos and sin of every position of the run, f32 [context, 2, head_dim / 2], by kind of layer


@dataclasses.dataclass(frozen=True)
class Step:
    """What is fixed when a step is compiled.

    Attributes:
      graph: the module's structure, `nnx.split` of it once; merged with the weights inside the traced function.
      config: the architecture.
      every_token: sample after every query token (verifying a draft) and not only after the last.
      with_logits: return the logits too.
      stacked: scan over the layers; see `layers.py`.
    """

    graph: nnx.GraphDef[Transformer]
    config: ModelConfig
    every_token: bool = False
    with_logits: bool = False
    stacked: bool = False

    def __call__(self, serving: Serving, kv: KV, work: tuple[Work, ...]) -> tuple[KV, tuple[Output, ...]]:
        """Run the model over all segments.

        Args:
          serving: weights and rotary tables.
          kv: the cache; donate it.
          work: the segments. Their table entries must be pages (or slots) that no other live row writes.

        Returns:
          The cache with the new tokens' K and V, and one `Output` a segment.
        """
        model = nnx.merge(self.graph, serving.weights)
        segments = tuple(w.segment for w in work)
        tokens = jnp.concatenate([s.tokens.ravel() for s in segments])
        positions = jnp.concatenate([s.positions().ravel() for s in segments])
        angles = {kind: _angles(table, positions) for kind, table in serving.angles.items()}
        x = model.embedding(tokens)
        x, kv = run_layers(model, self.config, x, angles, segments, kv, stacked=self.stacked)
        picked, counts = self._pick(x, segments)
        logits = model.logits(picked)
        outputs, at = [], 0
        for w, count in zip(work, counts, strict=True):
            outputs.append(self._output(logits[at : at + count], w))
            at += count
        return kv, tuple(outputs)

    def _pick(self, x: jax.Array, segments: tuple[Segment, ...]) -> tuple[jax.Array, list[int]]:
        """The rows of x [tokens, hidden] after which a token is sampled, and how many each segment has of them."""
        if self.every_token:
            return x, [s.size for s in segments]
        picked, first = [], 0
        for s in segments:
            last = jnp.maximum(s.count - 1, 0)
            picked.append(first + jnp.arange(s.rows) * s.query + last)
            first += s.size
        if all(s.query == 1 for s in segments):  # all tokens, in order
            return x, [s.rows for s in segments]
        return x[jnp.concatenate(picked)], [s.rows for s in segments]

    def _output(self, logits: jax.Array, work: Work) -> Output:
        """Sample a segment's logits [rows * sampled, vocab]; the sampled token stands one after the token that it follows."""
        s, rows = work.segment, work.sampling
        if self.every_token:
            position = s.positions().ravel() + 1
            rows = jax.tree.map(lambda a: jnp.repeat(a, s.query), rows)
        else:
            position = s.start + s.count
        with jax.named_scope("sample"):
            tokens = sample(logits, rows, position).reshape(s.rows, -1)
        return Output(tokens, logits if self.with_logits else None)


def _angles(table: jax.Array, positions: jax.Array) -> jax.Array:
    """f32 [context, 2, half] at positions i32 [tokens] -> [tokens, 2, half]. Padding may stand past the end; it is clipped."""
    with jax.named_scope("rope"):
        return table.at[positions].get(mode="clip")


def serving(config: ModelConfig, weights: nnx.State, context: int) -> Serving:
    """The read-only arguments of a step for sequences of up to `context` tokens."""
    angles = {"full": jnp.asarray(rotary.table(config.rope, config.head_dim, context))}
    if config.rope_local is not None:
        angles["local"] = jnp.asarray(rotary.table(config.rope_local, config.head_dim, context))
    return Serving(weights, angles)
