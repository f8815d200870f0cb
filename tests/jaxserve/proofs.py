"""What every answer of an engine of the tiny model must be.

Oracles: the dense float64 pass over one sequence (`tests.oracle`) and the slow definition of sampling (`sampling_oracle`) say of every
token whether it is the right one; a loop over the tokens says where the answer ends and what its text is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxserve.engine.engine import Engine
from jaxserve.engine.request_handle import RequestHandle
from jaxserve.programs.logprobs import TokenLogprob
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.continuous import Continuous
from tests.jaxserve import tiny
from tests.jaxserve.engines import CONTEXT, EOS, ROWS, engine, nothing_left, run
from tests.jaxserve.programs.sampling_oracle import adjusted, drawn, log_softmax

FIVE = SamplingParams(max_tokens=5, ignore_eos=True)
LOGPROB = 1e-4  # in f32, of logits of order 1


def ending(params: SamplingParams, tokens: Sequence[int]) -> tuple[int, str | None, str]:
    """(tokens of an answer that begins so, why it ends there or None, its text), from the definition, character by character."""
    text, stops = "", params.stop_set(EOS)
    limit = params.max_tokens if params.max_tokens is not None else math.inf
    for count, token in enumerate(tokens, start=1):
        armed = count > params.min_tokens
        if armed and token in stops:
            return count, "stop", text + chr(token) * params.include_stop
        text += chr(token)
        if armed and (found := [stop for stop in params.stop or () if text.endswith(stop)]):
            return count, "stop", text if params.include_stop else text[: len(text) - max(map(len, found))]
        if count >= limit:
            return count, "length", text
    return len(tokens), None, text


def proved(handle: RequestHandle, *, known: dict[Any, Any] | None = None) -> None:
    """Every token of all its answers is right, and ends where it must; with `known` also equal to what the same request drew before.

    An answer that was aborted is right as far as it goes.
    """
    for i, answer in enumerate(handle.answers):
        params = handle.params.of_sample(i)
        assert answer.finish is not None, handle
        cut = answer.finish.reason in ("abort", "timeout")
        limited = dataclasses.replace(params, max_tokens=handle_limit(handle))
        count, reason, text = ending(limited, answer.tokens)
        assert count == len(answer.tokens), (handle, i, "goes on after its end")
        assert (reason is None) if cut else (reason == answer.finish.reason), (handle, i, reason, answer.finish)
        assert answer.text == text, (handle, i, answer.text, text)
        right(handle.prompt, params, answer.tokens, handle.logprobs[i])
        if known is not None:
            key = tuple(handle.prompt), dataclasses.replace(limited, logprobs=None, prompt_logprobs=None)
            before = known.get(key, [])
            common = min(len(before), len(answer.tokens))
            assert answer.tokens[:common] == before[:common], (handle, i, answer.tokens, before)
            known[key] = max(before, list(answer.tokens), key=len)
    scored(handle)


def handle_limit(handle: RequestHandle) -> int:
    room = CONTEXT - len(handle.prompt) + 1
    return room if handle.params.max_tokens is None else handle.params.max_tokens


def right(prompt: Sequence[int], params: SamplingParams, answer: Sequence[int], logprobs: Sequence[TokenLogprob]) -> None:
    """Each token is what the slow definition draws after those before it."""
    if not answer:
        return
    logits = tiny.logits("llama", (*prompt, *answer))[len(prompt) - 1 :]
    stops = params.stop_set(EOS)
    for i, token in enumerate(answer):
        possible = drawn(adjusted(logits[i], params, prompt, answer[:i], stops), params, len(prompt) + i)
        assert token in possible, (i, token, possible, params)
    assert len(logprobs) == (0 if params.logprobs is None else len(answer))
    for i, (found, token) in enumerate(zip(logprobs, answer, strict=False)):
        same_logprob(found, token, params.logprobs or 0, log_softmax(logits[i]))


def scored(handle: RequestHandle) -> None:
    """The prompt's log-probabilities, if all of it was run."""
    if handle.params.prompt_logprobs is None:
        assert handle.scores is None and handle.prompt_logprobs is None
        return
    if handle.prompt_logprobs is None:
        assert not any(answer.tokens for answer in handle.answers)
        return
    assert len(handle.prompt_logprobs) == len(handle.prompt) and handle.prompt_logprobs[0] is None
    exact = tiny.logits("llama", tuple(handle.prompt))
    for found, token, logits in zip(handle.prompt_logprobs[1:], handle.prompt[1:], exact, strict=False):
        assert found is not None
        same_logprob(found, token, handle.params.prompt_logprobs, log_softmax(logits))


def same_logprob(found: TokenLogprob, token: int, top: int, exact: np.ndarray) -> None:
    assert found.token == token and found.logprob is not None
    assert abs(found.logprob - exact[token]) < LOGPROB
    best = sorted(exact, reverse=True)[:top]
    assert len(found.top) == top
    for (other, value), expected in zip(found.top, best, strict=True):
        assert value is not None and abs(value - expected) < LOGPROB and abs(exact[other] - expected) < LOGPROB


def greedy_answer(prompt: Sequence[int], count: int) -> list[int]:
    """What the dense oracle says, token by token."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(tiny.logits("llama", tuple(tokens))[-1].argmax()))
    return tokens[len(prompt) :]


def pieces_by_sample(pieces: Iterator[Any]) -> dict[tuple[int, int], tuple[list[int], str]]:
    """(tokens, text) that pieces add up to, by handle and sample."""
    sums: dict[tuple[int, int], tuple[list[int], str]] = {}
    for piece in pieces:
        tokens, text = sums.get((piece.handle.id, piece.sample), ([], ""))
        sums[piece.handle.id, piece.sample] = (tokens + list(piece.tokens), text + piece.text)
    return sums


def served(prompts: list[list[int]], params: SamplingParams = FIVE, one: Engine | None = None) -> list[RequestHandle]:
    """All together; each answer proved."""
    one = one or engine(Continuous(ROWS))
    handles = [one.submit(prompt, params) for prompt in prompts]
    run(one)
    for handle in handles:
        proved(handle)
    nothing_left(one)
    return handles


def answers(handles: list[RequestHandle]) -> list[list[int]]:
    return [answer.tokens for handle in handles for answer in handle.answers]
