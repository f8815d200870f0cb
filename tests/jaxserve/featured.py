"""Drives a step with features by hand: `Driver`, whose rows also say what their penalties, biases and log-probabilities need."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Many
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxserve.programs.features import Features
from jaxserve.programs.logit_bias import LogitBias
from jaxserve.programs.penalties import Penalties
from jaxserve.programs.step import Output, Work
from jaxserve.sampling_params import SamplingParams
from tests import oracle
from tests.jaxserve import tiny
from tests.jaxserve.driver import Driver, Rows, Sequence, _jitted
from tests.jaxserve.programs.sampling_oracle import adjusted, drawn

EOS = (1, 6)
ALL = Features(history=64, biases=8, logprobs=3)


class Featured(Driver):
    """Runs the plain tiny model. `outputs` are those of the last step, one a segment."""

    def __init__(self, features: Features = ALL, *, every_token: bool = False, logits: bool = True):
        super().__init__(*tiny.model("llama"), every_token=every_token, sequences=7)
        self.pure = dataclasses.replace(self.pure, features=features, with_logits=logits)
        self._step, self.features = self._remembering(_jitted(self.pure)), features
        self.outputs: tuple[Output, ...] = ()
        self.prompts: dict[int, int] = {}  # length, by the identity of the sequence

    def _remembering(self, step: Any) -> Any:
        def run(*given: Any) -> Any:
            kv, self.outputs = step(*given)
            if self.outputs[0].logits is None:  # `Driver.step` cuts them into rows
                blank = [jnp.zeros((*o.tokens.shape, 1)) for o in self.outputs]
                return kv, tuple(dataclasses.replace(o, logits=b) for o, b in zip(self.outputs, blank, strict=True))
            return kv, self.outputs

        return run

    def request(self, prompt: Many[int], sampling: SamplingParams, answer: Many[int] = ()) -> Sequence:
        found = self.sequence([*prompt, *answer], sampling)
        self.prompts[id(found)] = len(prompt)
        return found

    def work(self, segment: Rows) -> Work:
        work, rows, f = super().work(segment), len(segment.rows), self.features
        penalties = Penalties.blank(rows, f.history) if f.history else None
        biases = LogitBias.blank(rows, f.biases) if f.biases else None
        following = None if f.prompt_logprobs is None else np.zeros((rows, segment.query), np.int32)
        if penalties is not None:
            penalties.history[:] = 5  # what no row may count
        for i, s in enumerate(segment.rows):
            if s is None:
                continue
            prompt = self.prompts[id(s)]
            if penalties is not None:
                penalties.put(i, s.sampling, s.tokens[: s.cached], prompt)
            if biases is not None:
                biases.put(i, s.sampling, prompt, s.sampling.stop_set(EOS))
            if following is not None:
                after = s.tokens[s.cached + 1 : s.cached + 1 + segment.count(i)]
                following[i, : len(after)] = after
        return dataclasses.replace(work, penalties=penalties, biases=biases, following=following)

    def answer(self, prompt: Many[int], sampling: SamplingParams, size: int, chunk: int = 8) -> list[int]:
        """The answer of one request, alone."""
        s = self.begun(prompt, sampling, chunk)
        self.decode([s], size - 1)
        return s.tokens[len(prompt) :]

    def begun(self, prompt: Many[int], sampling: SamplingParams, chunk: int = 8) -> Sequence:
        """A request with the first token of its answer."""
        s = self.request(prompt, sampling)
        s.tokens.append(int(self.prefill(s, chunk)[-1][1][0]))
        return s


def check(prompt: Many[int], params: SamplingParams, answer: Many[int]) -> int:
    """Every token of an answer is what the slow definition draws from the dense float64 model; how often f32 could choose."""
    logits = oracle.logits(*tiny.model("llama"), [*prompt, *answer])[len(prompt) - 1 :]
    unsure = 0
    for i, token in enumerate(answer):
        possible = drawn(adjusted(logits[i], params, prompt, answer[:i], params.stop_set(EOS)), params, len(prompt) + i)
        assert token in possible, (i, token, possible)
        unsure += len(possible) > 1
    return unsure
