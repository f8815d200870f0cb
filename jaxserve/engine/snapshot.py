"""The requests of an engine as plain data, so that another process can go on with them.

KV is not kept: a prompt and what was drawn after it are run again, and as a token's draw depends on its seed and its position alone,
the rest of the answer is what it would have been.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterable, Mapping
from typing import Any

from jaxserve.engine.model import Model
from jaxserve.engine.request_handle import RequestHandle
from jaxserve.programs.logprobs import TokenLogprob
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class SavedRequest:
    """A request of a snapshot, and how far it was.

    Attributes:
      id: of its handle then.
      timeout: s that it may still wait.
      continued: prompt and answer are one text.
      answers: tokens of each sample so far.
      ended: of each sample, how it ended where its tokens don't tell ("abort"), else None.
      logprobs, prompt_logprobs: as in `RequestHandle`, as far as they were asked for.
    """

    id: int
    prompt: list[int]
    params: SamplingParams
    priority: int
    timeout: float
    continued: bool
    answers: list[list[int]]
    ended: list[str | None]
    logprobs: list[list[TokenLogprob]]
    prompt_logprobs: list[TokenLogprob | None]

    def replay(self, handle: RequestHandle) -> None:
        """Bring a fresh handle to where this one was. When its tokens came is forgotten.

        Raises:
          UserError: an answer would have ended before.
        """
        for i, (answer, tokens, ended) in enumerate(zip(handle.answers, self.answers, self.ended, strict=True)):
            for token in tokens:
                if answer.finish:
                    raise UserError(
                        f"request {self.id} of the snapshot has an answer of {len(tokens)} tokens, which ends after {len(answer.tokens)} "
                        "here; serve it with the context and the tokenizer that it began with"
                    )
                answer.push(token)
            if ended:
                answer.abort("timeout" if ended == "timeout" else "abort")
            handle.logprobs[i] += self.logprobs[i]
        if handle.scores:
            handle.scores.entries = list(self.prompt_logprobs)


def taken(model: Model, handles: Iterable[RequestHandle], waiting: Container[int], now: float) -> dict[str, Any]:
    """A snapshot of these requests at `now` s: see `read`. It shares nothing with them, so it stays as it is while they go on.

    Args:
      waiting: ids of those that have not begun; only they can still be too late.
    """
    return {
        "format": FORMAT,
        "model": _identity(model),
        "requests": [
            {
                "id": handle.id,
                "prompt": list(handle.prompt),
                "continued": handle.continued,
                "params": dataclasses.asdict(handle.params),
                "priority": handle.priority,
                "timeout": handle.arrival + handle.timeout - now
                if handle.timeout < math.inf and handle.id in waiting
                else None,
                "answers": [list(answer.tokens) for answer in handle.answers],
                "ended": [
                    answer.finish.reason if answer.finish and answer.finish.reason in ("abort", "timeout") else None
                    for answer in handle.answers
                ],
                "logprobs": [list(each) for each in handle.logprobs],
                "prompt_logprobs": list(handle.scores.entries) if handle.scores else [],
            }
            for handle in handles
        ],
    }


def read(model: Model, given: Mapping[str, Any]) -> list[SavedRequest]:
    """The requests of a snapshot, which may have been JSON in between.

    Raises:
      UserError: it is no snapshot, of another format, or of another model.
    """
    if not isinstance(given, Mapping) or given.get("format") != FORMAT:
        found = given.get("format") if isinstance(given, Mapping) else type(given).__name__
        raise UserError(f"the snapshot has format {found!r}; this version reads {FORMAT}, as Engine.snapshot() gives it")
    if given.get("model") != _identity(model):
        raise UserError(f"the snapshot is of {given.get('model')} and this engine serves {_identity(model)}; serve that model")
    try:
        asked = [_asked(dict(one), model) for one in given["requests"]]
        if len({one.id for one in asked}) < len(asked):
            raise ValueError("two requests have the same id")
        return asked
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"the snapshot is damaged ({type(error).__name__}: {error}); take it again with Engine.snapshot()"
        ) from None


def _identity(model: Model) -> dict[str, Any]:
    """What has to be equal for answers to go on: the architecture by its size, and the vocabulary."""
    return {"name": model.name, "dtype": model.dtype, "parameters": model.parameters, "vocabulary": model.config.vocab_size}


def _asked(one: dict[str, Any], model: Model) -> SavedRequest:
    vocab = model.config.vocab_size
    params = dict(one["params"])
    params["logit_bias"] = [(token, value) for token, value in params["logit_bias"]]
    asked = SavedRequest(
        id=int(one["id"]),
        prompt=[int(token) for token in one["prompt"]],
        params=SamplingParams(**params),
        priority=int(one["priority"]),
        timeout=math.inf if one["timeout"] is None else float(one["timeout"]),
        continued=bool(one.get("continued", not model.tokenizer.chat_template)),  # older ones don't say
        answers=[[int(token) for token in answer] for answer in one["answers"]],
        ended=list(one["ended"]),
        logprobs=[[_logprob(each) for each in answer] for answer in one["logprobs"]],
        prompt_logprobs=[None if each is None else _logprob(each) for each in one["prompt_logprobs"]],
    )
    if not len(asked.answers) == len(asked.ended) == len(asked.logprobs) == asked.params.n:
        raise ValueError(f"request {asked.id} has {len(asked.answers)} answers and asks for {asked.params.n}")
    for answer, ended, logprobs in zip(asked.answers, asked.ended, asked.logprobs, strict=True):
        if ended not in (None, "abort", "timeout") or not all(0 <= token < vocab for token in answer):
            raise ValueError(f"an answer of request {asked.id} has tokens past the vocabulary, or an unknown end")
        if [each.token for each in logprobs] != (answer if asked.params.logprobs is not None else []):
            raise ValueError(f"request {asked.id} has log-probabilities of other tokens than its answer's")
    if len(asked.prompt_logprobs) != (len(asked.prompt) if asked.params.prompt_logprobs is not None else 0):
        raise ValueError(f"request {asked.id} has log-probabilities of another prompt")
    return asked


def _logprob(given: Any) -> TokenLogprob:
    token, logprob, top = given
    return TokenLogprob(token, logprob, tuple((other, value) for other, value in top))
