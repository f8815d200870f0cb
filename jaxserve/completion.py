"""What became of a request, as plain values that stay when the engine goes on. Plain Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxserve.answer import Finish
from jaxserve.handle import Handle
from jaxserve.logprobs import TokenLogprob


class Answered(NamedTuple):
    """One answer.

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


@dataclasses.dataclass(frozen=True)
class Completion:
    """A request that has ended.

    Attributes:
      prompt: as it was given.
      prompt_tokens: what the model read.
      answers: one a sample.
      prompt_logprobs: of each token of the prompt, None for the first; None where they were not asked for.
    """

    prompt: str | Sequence[int]
    prompt_tokens: tuple[int, ...]
    answers: tuple[Answered, ...]
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None

    @classmethod
    def of(cls, prompt: str | Sequence[int], handle: Handle) -> Completion:
        """Of a request all of whose answers have ended."""
        answers = []
        for answer, found, times in zip(handle.answers, handle.logprobs, handle.token_times, strict=True):
            assert answer.finish is not None, f"{handle!r} has not ended"
            since = tuple(time - handle.arrival for time in times)
            answers.append(Answered(answer.text, tuple(answer.tokens), answer.finish, tuple(found), since))
        scores = handle.prompt_logprobs
        return cls(prompt, tuple(handle.prompt), tuple(answers), None if scores is None else tuple(scores))

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

    def to_json(self) -> dict[str, Any]:
        """Plain data. Times are measured; a logprob that the model gave none for is null."""
        found: dict[str, Any] = {
            "prompt": self.prompt if isinstance(self.prompt, str) else list(self.prompt),
            "prompt_tokens": list(self.prompt_tokens),
            "answers": [_answer(answer) for answer in self.answers],
            "measured_ttft_seconds": self.ttft,
            "measured_seconds": self.seconds,
        }
        if self.prompt_logprobs is not None:
            found["prompt_logprobs"] = [None if each is None else _logprob(each) for each in self.prompt_logprobs]
        return found


def _answer(answer: Answered) -> dict[str, Any]:
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
