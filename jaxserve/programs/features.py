"""What a program can do beyond drawing tokens: fixed when it is compiled, so that a program without a feature does not pay for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from jaxserve.programs.buckets import powers
from jaxserve.programs.logit_bias import entries
from jaxserve.sampling_params import FORBID, MAX_LOGPROBS, ONLY, SamplingParams
from jaxserve.values import integer, settle
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Features:
    """None by default. A program with features serves rows that need none of them too.

    Attributes:
      history: tokens that a penalised row may have; 0 for no penalties.
      biases: tokens of a row that may be biased or held back; 0 for none.
      logprobs: report every drawn token's, with so many alternatives.
      prompt_logprobs: report every prompt token's, with so many alternatives. The head then runs over all tokens of the step.
    """

    history: int = 0
    biases: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        for name in ("history", "biases"):
            settle(self, **{name: integer(f"features: {name}", getattr(self, name), 0)})
        for name in ("logprobs", "prompt_logprobs"):
            if (value := getattr(self, name)) is not None:
                rule = f"it must lie in 0 to {MAX_LOGPROBS}, or be None"
                settle(self, **{name: integer(f"features: {name}", value, 0, MAX_LOGPROBS, rule)})

    def missing(self, params: SamplingParams, stops: Iterable[int]) -> str | None:
        """What a request needs that such a program cannot do, or None.

        Args:
          params: the request's settings.
          stops: the tokens that end its answer, `params.stop_set(eos)`.
        """
        if params.penalised and not self.history:
            return "penalties"
        if (wanted := len(entries(params, 0, stops))) > self.biases:
            return f"{wanted} biased or held back tokens; the limit is {self.biases}"
        for name in ("logprobs", "prompt_logprobs"):
            wanted, most = getattr(params, name), getattr(self, name)
            if wanted is not None and (most is None or wanted > most):
                return f"{wanted} {name}; the limit is {most}"
        return None

    def check(self, params: SamplingParams, stops: Iterable[int], vocab: int) -> None:
        """Raises UserError where a request needs more than this, names a token past the vocabulary, or leaves nothing to draw."""
        stops = frozenset(stops)
        if lacking := self.missing(params, stops):
            raise UserError(f"the request asks for {lacking}; leave it out, or serve with programs that were compiled for it")
        named = {"logit_bias": [token for token, _ in params.biases], "stop_ids": params.stop_ids or ()}
        for name, tokens in named.items():
            if wrong := [token for token in tokens if token >= vocab]:
                raise UserError(f"{name} names token {wrong[0]}; the vocabulary ends at {vocab - 1}")
        values = dict(params.biases)
        held = stops if params.min_tokens else frozenset()
        only = {token for token, value in values.items() if value == ONLY}
        barred = held | {token for token, value in values.items() if value == FORBID}
        if (only and only <= held) or (not only and len(barred) >= vocab):
            raise UserError(
                "logit_bias and min_tokens together leave no token to draw; allow one that does not end the answer, or lower min_tokens"
            )


PLAIN = Features()


# Which features some requests need, so that programs are compiled for just these.


def required_features(params: Iterable[SamplingParams], eos: Iterable[int], context: int) -> Features:
    """The least features with which all of these can be served.

    The number of biased tokens is rounded up to a power of two, so that a request with one more doesn't need programs of its own.

    Args:
      eos: the model's own end tokens.
      context: tokens of the longest sequence.
    """
    found, eos = Features(), tuple(eos)
    for each in params:
        biases = len(entries(each, 0, each.stop_set(eos)))
        asked = Features(
            history=context if each.penalised else 0,
            biases=powers(biases)[-1] if biases else 0,
            logprobs=each.logprobs,
            prompt_logprobs=each.prompt_logprobs,
        )
        found = union(found, asked)
    return found


def union(one: Features, other: Features) -> Features:
    """Whatever one of them can do."""
    return Features(
        max(one.history, other.history),
        max(one.biases, other.biases),
        _most(one.logprobs, other.logprobs),
        _most(one.prompt_logprobs, other.prompt_logprobs),
    )


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
