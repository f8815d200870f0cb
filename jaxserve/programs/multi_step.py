"""Multi-step decode: one program that decodes up to k times and asks the host once.

Each step feeds the tokens that the last one drew. A row ends at one of its stops and then writes nothing more, the program after
`Repeat.most` steps or when all rows have ended. What a row draws is what single steps draw: its key is of its position, its penalties
count what was drawn meanwhile, and its biases hold by position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.programs.logprobs import Logprobs
from jaxserve.programs.step import Output, Step, Work
from models.forward import Serving, loop_trips
from models.layers import KV
from models.segment import Segment

Carry = tuple[jax.Array, KV, Work, Output]  # steps done, the cache, what the next step works on, and what was drawn

SCOPE = "repeat"  # around the loop: its key in `multi_step_trips`


@dataclasses.dataclass(frozen=True)
class MultiStep:
    """A decode step that runs up to `steps` times. Its rows are past their prompt, so it has no prompt log-probabilities."""

    step: Step
    steps: int

    def __call__(self, serving: Serving, kv: KV, work: tuple[Work, ...]) -> tuple[KV, tuple[Output, ...]]:
        """Decode until all rows have ended, or often enough.

        Args:
          serving, kv: as `Step` takes them.
          work: one segment of query 1, with `repeat`. Tables hold the pages of all steps; penalties look at the tokens below `start`.

        Returns:
          The cache, and one `Output` of [rows, steps], without logits; what stands after a row's end means nothing.
        """
        (first,) = work
        repeat, features = first.repeat, dataclasses.replace(self.step.features, prompt_logprobs=None)
        assert repeat is not None, "a repeated decode takes Work.repeat"
        one = dataclasses.replace(self.step, every_token=False, with_logits=False, features=features)

        def going(carry: Carry) -> jax.Array:
            with jax.named_scope("sample"):
                return (carry[0] < jnp.minimum(repeat.most, self.steps)) & (carry[2].segment.count > 0).any()

        def body(carry: Carry) -> Carry:
            done, kv, now, drawn = carry
            # Weights that seem to change from step to step: what is made of them, such as 16 bits seen as integers, would be taken out of
            # the loop else, into a copy of its own.
            weights, done = jax.lax.optimization_barrier((serving, done))
            kv, (out,) = one(weights, kv, (now,))
            with jax.named_scope("sample"):
                drawn = jax.tree.map(lambda all, new: jax.lax.dynamic_update_slice_in_dim(all, new, done, axis=1), drawn, out)
                return done + 1, kv, _next(now, out.tokens, repeat.stops), drawn

        with jax.named_scope("sample"):
            start = jnp.int32(0), kv, jax.tree.map(jnp.asarray, dataclasses.replace(first, repeat=None)), self._empty(first)
        with jax.named_scope(SCOPE):
            _, kv, _, drawn = jax.lax.while_loop(going, body, start)
        return kv, (drawn,)

    def _empty(self, work: Work) -> Output:
        shape, top = (work.segment.rows, self.steps), self.step.features.logprobs
        found = None
        if top is not None:
            likeliest = (*shape, top)
            found = Logprobs(jnp.zeros(shape), jnp.zeros(likeliest), jnp.zeros(likeliest, jnp.int32))
        return Output(jnp.zeros(shape, jnp.int32), None, found)


def _next(work: Work, drawn: jax.Array, stops: jax.Array) -> Work:
    """The work of the step after one that drew i32 [rows, 1]: rows go on by one token, those that drew a stop have none."""
    s, penalties = work.segment, work.penalties
    if penalties is not None:  # what the step ran is now below `start`
        at = jnp.where(s.count > 0, s.start, penalties.history.shape[1])
        history = penalties.history.at[jnp.arange(s.rows), at].set(s.tokens[:, 0], mode="drop")
        penalties = dataclasses.replace(penalties, history=history)
    count = jnp.where((drawn == stops).any(axis=1), 0, s.count)
    return dataclasses.replace(work, segment=Segment(drawn, s.start + s.count, count, s.table), penalties=penalties)


def multi_step_trips(step: Step, kv: KV, segment: Segment, ran: Sequence[int]) -> dict[str, float]:
    """How often the loops of a repeated decode run that data bound.

    Args:
      step: what is repeated.
      kv: only shapes are looked at.
      segment: host arrays of what the first step works on.
      ran: tokens that each row ran in all, those of the first rows. That is `Repeat.most`, or fewer for a row that ended before.

    Returns:
      As `models.forward.loop_trips`, means over the steps; and as "repeat" how many steps there were, those of the row that ran longest.
    """
    left = np.zeros(segment.rows, np.int32)
    left[: len(ran)] = ran
    steps = int(left.max())
    each = []
    for i in range(max(steps, 1)):
        now = dataclasses.replace(segment, start=segment.start + i, count=(left > i).astype(np.int32))
        each.append(loop_trips(step.config, kv, (now,), stacked=step.stacked))
    return {SCOPE: float(steps)} | {name: sum(one[name] for one in each) / len(each) for name in each[0]}
