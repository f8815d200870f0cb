"""The one pure step: tokens of all segments in, the cache and each row's next token out.

The model's pass over the segments is `models.forward`; what serving adds is that the next tokens are drawn in the same program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxserve.programs.features import PLAIN, Features
from jaxserve.programs.logit_bias import LogitBias, biased
from jaxserve.programs.logprobs import Logprobs, logprobs
from jaxserve.programs.penalties import Penalties, penalised
from jaxserve.programs.sampling import RowSampling, sample
from models.config.model_config import ModelConfig
from models.forward import Serving, forward
from models.layers import KV
from models.segment import Array, Segment
from models.transformer import Transformer

STOPS = 8  # tokens of a row that end a repeated decode


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Repeat:
    """When a repeated decode ends: see `jaxserve/programs/multi_step.py`."""

    stops: Array  # i32 [rows, STOPS]: tokens that end the row, -1 where there are none
    most: Array  # i32 []: steps at most; more than the program was compiled for mean as many as that

    @classmethod
    def blank(cls, rows: int, steps: int) -> Self:
        """Host arrays of rows that nothing ends before all `steps`."""
        return cls(np.full((rows, STOPS), -1, np.int32), np.array(steps, np.int32))

    def put(self, row: int, stops: Iterable[int]) -> None:
        """Fill in a row of host arrays. Of more tokens than there is room for the lowest count: the others end it on the host alone."""
        given = sorted(stops)[:STOPS]
        self.stops[row, : len(given)] = given


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Work:
    """One segment of a step, and how its next tokens are drawn. What the step's features do not need is None."""

    segment: Segment
    sampling: RowSampling
    penalties: Penalties | None = None
    biases: LogitBias | None = None
    following: Array | None = (
        None  # i32 [rows, query]: the prompt token after each, for its logprob; any token where there is none
    )
    repeat: Repeat | None = None  # only of a repeated decode


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Output:
    """What a step says of one segment.

    `sampled` is 1 (after the last live token of each row); of a segment that is verified, the query; of a repeated decode, the steps.
    """

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
      every_token: sample after every query token (scoring a text, verifying a draft) and not only after the last; one answer for all
        segments, or one for each.
      with_logits: return the logits too, as the model gives them.
      stacked: scan over the layers; see `models/layers.py`.
      features: what it can do beyond drawing tokens.
    """

    graph: nnx.GraphDef[Transformer]
    config: ModelConfig
    every_token: bool | tuple[bool, ...] = False
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
        every = self.every_token if self.features.prompt_logprobs is None else True
        kv, logits = forward(self.graph, self.config, serving, kv, segments, every_token=every, stacked=self.stacked)
        sampled = (self.every_token,) * len(work) if isinstance(self.every_token, bool) else self.every_token
        return kv, tuple(self._output(*each) for each in zip(logits, work, sampled, strict=True))

    def _output(self, logits: jax.Array, work: Work, every_token: bool) -> Output:
        """Sample after a segment's tokens; a sampled token stands one after the token that it follows.

        Args:
          logits: [rows * sampled, vocab]; with prompt_logprobs [rows * query, vocab].
          every_token: sample after each of them.
        """
        s, rows, biases = work.segment, work.sampling, work.biases
        with jax.named_scope("sample"):
            prompt = None
            if self.features.prompt_logprobs is not None:
                assert work.following is not None, "a step with prompt_logprobs takes Work.following"
                prompt = logprobs(logits, work.following, self.features.prompt_logprobs)
                if not every_token:  # of [rows * query, vocab] what follows the last live token of each row
                    logits = logits.reshape(s.rows, s.query, -1)[jnp.arange(s.rows), jnp.maximum(s.count - 1, 0)]
            if every_token:
                position = s.positions().ravel() + 1
                rows, biases = jax.tree.map(lambda a: jnp.repeat(a, s.query, axis=0), (rows, biases))
            else:
                position = s.start + s.count
            chosen = logits
            if work.penalties is not None:
                chosen = penalised(chosen, work.penalties, s, every_token=every_token)
            if biases is not None:
                chosen = biased(chosen, biases, position)
            tokens = sample(chosen, rows, position).reshape(s.rows, -1)
            found = None if self.features.logprobs is None else logprobs(logits, tokens, self.features.logprobs)
        return Output(tokens, logits if self.with_logits else None, found, prompt)
