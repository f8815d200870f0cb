"""Which features some requests need, so that programs are compiled for just these."""

from __future__ import annotations

from collections.abc import Iterable

from jaxserve.programs.buckets import powers
from jaxserve.programs.features import Features
from jaxserve.programs.logit_bias import entries
from jaxserve.sampling_params import SamplingParams


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
