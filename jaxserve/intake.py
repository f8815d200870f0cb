"""From what a client asks to a request that can be served, or a clear refusal."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from jaxserve.features import Features
from jaxserve.handle import Handle
from jaxserve.model import Model
from jaxserve.pieces import Pieces
from jaxserve.sampling_params import SamplingParams, check_params
from jaxserve.scheduling.request import Request
from models.errors import UserError


class Intake:
    """What an engine can serve.

    Attributes:
      eos: the model's own end tokens.
      context: tokens of the longest sequence.
    """

    def __init__(self, model: Model, features: Features, context: int):
        self.context, self.eos = context, frozenset(model.tokenizer.eos_tokens)
        self._tokenizer, self._features, self._vocab = model.tokenizer, features, model.config.vocab_size
        self._pieces = Pieces(model.tokenizer)

    def encode(self, prompt: Sequence[int] | str) -> list[int]:
        """Token ids as they are; a text as `Tokenizer.encode_prompt` says.

        Raises:
          UserError: it is neither.
        """
        if isinstance(prompt, str):
            return self._tokenizer.encode_prompt(prompt)
        try:
            return list(map(operator.index, prompt))
        except TypeError:
            raise UserError(f"the prompt is {str(prompt)[:40]!r}; give a text, or token ids as whole numbers") from None

    def limit(self, prompt: Sequence[int], params: SamplingParams) -> int:
        """Tokens that an answer may have.

        Raises:
          UserError: no params, an empty prompt, a token that there is not, a request too long for the context, or a
            feature that is not compiled.
        """
        check_params(params)
        self._features.check(params, params.stop_set(self.eos), self._vocab)
        if not len(prompt):
            raise UserError("the prompt is empty; give it at least one token")
        if wrong := [token for token in prompt if not 0 <= token < self._vocab]:
            raise UserError(f"the prompt has token {wrong[0]}; ids lie in 0 to {self._vocab - 1}")
        room = self._room(prompt)
        limit = max(room, 1) if params.max_tokens is None else params.max_tokens
        if limit > room:
            raise UserError(
                f"a prompt of {len(prompt)} tokens with up to {limit} to follow needs room for {len(prompt) + limit - 1}, but the limit "
                f"is {self.context}; shorten it, ask for fewer tokens, or serve with a larger context"
            )
        return limit

    def request(
        self,
        id: int,
        prompt: Sequence[int] | str,
        params: SamplingParams,
        *,
        arrival: float,
        priority: int = 1,
        timeout: float = math.inf,
    ) -> Request:
        """What the scheduler has to know of it.

        Raises:
          UserError: see `encode` and `limit`.
        """
        tokens = self.encode(prompt)
        limit, reuse = self.limit(tokens, params), params.prompt_logprobs is None  # else every token of the prompt must be run
        return Request(id, tuple(tokens), limit, arrival, priority, arrival + timeout, params.n, reuse)

    def handle(self, id: int, prompt: list[int], params: SamplingParams, **when: Any) -> Handle:
        """A handle for an accepted request; `when` is arrival, priority and timeout."""
        continued = not self._tokenizer.chat_template
        return Handle(id, prompt, params, self._pieces, self.eos, self._room(prompt), continued=continued, **when)

    def _room(self, prompt: Sequence[int]) -> int:
        return self.context - len(prompt) + 1  # the last token that is drawn is never run
