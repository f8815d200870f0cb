"""The one pure step: tokens of all segments in, the cache and each row's next token out.

The model's pass over the segments is `models.forward`; what serving adds is that the next tokens are drawn in the same program.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from jaxserve.biases import Biases, biased
from jaxserve.features import PLAIN, Features
from jaxserve.logprobs import Logprobs, logprobs
from jaxserve.penalties import Penalties, penalised
from jaxserve.sampling import RowSampling, sample
from models.config import ModelConfig
from models.forward import Serving, forward
from models.layers import KV
from models.segment import Array, Segment
from models.transformer import Transformer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Work:
    """One segment of a step, and how its next tokens are drawn. What the step's features do not need is None."""

    segment: Segment
    sampling: RowSampling
    penalties: Penalties | None = None
    biases: Biases | None = None
    following: Array | None = (
        None  # i32 [rows, query]: the prompt token after each, for its logprob; any token where there is none
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Output:
    """What a step says of one segment. `sampled` is 1 (after the last live token of each row) or, for a verify step, the query."""

    tokens: jax.Array  # i32 [rows, sampled]: the token that follows
    logits: jax.Array | None  # f32 [rows * sampled, vocab], only where the step was asked for them
    logprobs: Logprobs | None = None  # of `tokens`, places = sampled
    prompt: Logprobs | None = None  # of `Work.following`, places = query


@dataclasses.dataclass(frozen=True)
class Step:
    """What is fixed when a step is compiled.

    Attributes:
      graph: the module's structure, `nnx.split` of it once; merged with the weights inside the traced function.
      config: the architecture.
      every_token: sample after every query token (verifying a draft) and not only after the last.
      with_logits: return the logits too, as the model gives them.
      stacked: scan over the layers; see `models/layers.py`.
      features: what it can do beyond drawing tokens.
    """

    graph: nnx.GraphDef[Transformer]
    config: ModelConfig
    every_token: bool = False
    with_logits: bool = False
    stacked: bool = False
    features: Features = PLAIN

    def __call__(self, serving: Serving, kv: KV, work: tuple[Work, ...]) -> tuple[KV, tuple[Output, ...]]:
        """Run the model over all segments and draw the next tokens.

        Args:
          serving: weights and rotary tables.
          kv: the cache; donate it.
          work: the segments. Their table entries must be pages (or slots) that no other live row writes.

        Returns:
          The cache with the new tokens' K and V, and one `Output` a segment.
        """
        segments = tuple(w.segment for w in work)
        every = self.every_token or self.features.prompt_logprobs is not None
        kv, logits = forward(self.graph, self.config, serving, kv, segments, every_token=every, stacked=self.stacked)
        return kv, tuple(self._output(rows, w) for rows, w in zip(logits, work, strict=True))

    def _output(self, logits: jax.Array, work: Work) -> Output:
        """Sample a segment's logits [rows * sampled, vocab]; the sampled token stands one after the token that it follows."""
        s, rows, biases = work.segment, work.sampling, work.biases
        with jax.named_scope("sample"):
            prompt = None
            if self.features.prompt_logprobs is not None:
                assert work.following is not None, "a step with prompt_logprobs takes Work.following"
                prompt = logprobs(logits, work.following, self.features.prompt_logprobs)
                if not self.every_token:  # of [rows * query, vocab] what follows the last live token of each row
                    logits = logits.reshape(s.rows, s.query, -1)[jnp.arange(s.rows), jnp.maximum(s.count - 1, 0)]
            if self.every_token:
                position = s.positions().ravel() + 1
                rows, biases = jax.tree.map(lambda a: jnp.repeat(a, s.query, axis=0), (rows, biases))
            else:
                position = s.start + s.count
            chosen = logits
            if work.penalties is not None:
                chosen = penalised(chosen, work.penalties, s, every_token=self.every_token)
            if biases is not None:
                chosen = biased(chosen, biases, position)
            tokens = sample(chosen, rows, position).reshape(s.rows, -1)
            found = None if self.features.logprobs is None else logprobs(logits, tokens, self.features.logprobs)
        return Output(tokens, logits if self.with_logits else None, found, prompt)
