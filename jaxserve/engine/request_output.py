"""What became of a request, as plain values that stay when the engine goes on. Plain Python."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxserve.engine.request_handle import RequestHandle
from jaxserve.engine.sequence import Finish
from jaxserve.programs.logprobs import TokenLogprob
from jaxserve.sampling_params import SamplingParams


class CompletionOutput(NamedTuple):
    """One answer. `token_ids`, `finish_reason` and `cumulative_logprob` are vLLM's names.

    Attributes:
      text: without what ended it, unless that was asked for.
      tokens: all that were drawn, with the one that ended it.
      finish: why it ended.
      logprobs: of its tokens; empty where they were not asked for.
      times: s from the request's arrival at which each token was on the host (clock).
    """

    text: str
    tokens: tuple[int, ...]
    finish: Finish
    logprobs: tuple[TokenLogprob, ...]
    times: tuple[float, ...]

    @property
    def token_ids(self) -> list[int]:
        """The tokens, as a list."""
        return list(self.tokens)

    @property
    def finish_reason(self) -> str:
        """ "stop", "length", "abort" or "timeout"."""
        return self.finish.reason

    @property
    def cumulative_logprob(self) -> float | None:
        """The sum of its tokens' log-probabilities: -inf where the model gave one none, None where they were not asked for."""
        if not self.logprobs:
            return None
        return math.fsum(-math.inf if each.logprob is None else each.logprob for each in self.logprobs)


@dataclasses.dataclass(frozen=True)
class RequestOutput:
    """A request that has ended. `outputs`, `prompt_token_ids` and `finished` are vLLM's names.

    Attributes:
      prompt: a text, token ids or messages, as they were given.
      prompt_tokens: what the model read.
      answers: one a sample.
      prompt_logprobs: of each token of the prompt, None for the first; None where they were not asked for.
      request_id: of the request in its engine, from 0.
      params: as asked, with the seed that was drawn where there was none: they give the same answers again.
    """

    prompt: Any
    prompt_tokens: tuple[int, ...]
    answers: tuple[CompletionOutput, ...]
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    request_id: int = 0
    params: SamplingParams = dataclasses.field(default_factory=SamplingParams)

    @classmethod
    def of(cls, prompt: Any, handle: RequestHandle) -> RequestOutput:
        """Of a request all of whose answers have ended.

        Args:
          prompt: as it was given; of vLLM's {"prompt": text} and {"prompt_token_ids": ids} what they hold is kept.
        """
        if isinstance(prompt, Mapping):
            prompt = prompt.get("prompt") or prompt["prompt_token_ids"]
        answers = []
        for answer, found, times in zip(handle.answers, handle.logprobs, handle.token_times, strict=True):
            assert answer.finish is not None, f"{handle!r} has not ended"
            since = tuple(time - handle.arrival for time in times)
            answers.append(CompletionOutput(answer.text, tuple(answer.tokens), answer.finish, tuple(found), since))
        scores = handle.prompt_logprobs
        logprobs = None if scores is None else tuple(scores)
        return cls(prompt, tuple(handle.prompt), tuple(answers), logprobs, handle.id, handle.params)

    @property
    def seed(self) -> int | None:
        """Of the first answer's draws; answer i has that of `params.of_sample(i)`. None where nothing was drawn."""
        return self.params.seed

    @property
    def outputs(self) -> tuple[CompletionOutput, ...]:
        """The answers."""
        return self.answers

    @property
    def prompt_token_ids(self) -> list[int]:
        """What the model read, as a list."""
        return list(self.prompt_tokens)

    @property
    def finished(self) -> bool:
        """True: a request is told of when all its answers have ended."""
        return True

    @property
    def text(self) -> str:
        """Of the first answer."""
        return self.answers[0].text

    @property
    def ttft(self) -> float | None:
        """s from arrival to the first token of any answer (clock); None where there is none."""
        return min((answer.times[0] for answer in self.answers if answer.times), default=None)

    @property
    def seconds(self) -> float | None:
        """s from arrival to the last token of all answers (clock); None where there is none."""
        return max((answer.times[-1] for answer in self.answers if answer.times), default=None)

    @property
    def _worded(self) -> bool:
        """The prompt was given as a text or as messages, not as ids."""
        return isinstance(self.prompt, str) or (len(self.prompt) > 0 and isinstance(self.prompt[0], Mapping))

    def to_json(self) -> dict[str, Any]:
        """Plain data. Times are measured; a logprob that the model gave none for is null."""
        found: dict[str, Any] = {
            "prompt": self.prompt if self._worded else list(self.prompt_tokens),
            "prompt_tokens": list(self.prompt_tokens),
            "seed": self.seed,
            "answers": [_answer(answer) for answer in self.answers],
            "measured_ttft_seconds": self.ttft,
            "measured_seconds": self.seconds,
        }
        if self.prompt_logprobs is not None:
            found["prompt_logprobs"] = [None if each is None else _logprob(each) for each in self.prompt_logprobs]
        return found


def _answer(answer: CompletionOutput) -> dict[str, Any]:
    found: dict[str, Any] = {
        "text": answer.text,
        "tokens": list(answer.tokens),
        "finish_reason": answer.finish.reason,
        "stopped_at": answer.finish.matched,
    }
    if answer.logprobs:
        found["logprobs"] = [_logprob(each) for each in answer.logprobs]
    return found


def _logprob(each: TokenLogprob) -> dict[str, Any]:
    return {"token": each.token, "logprob": each.logprob, "top": [list(pair) for pair in each.top]}
