"""One answer as it grows: its tokens, what of its text may be shown, and when and why it ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from jaxserve.sampling_params import SamplingParams
from jaxserve.text.detokenizer import Detokenizer
from jaxserve.text.stop_strings import StopMatcher
from jaxserve.text.token_bytes import TokenBytes


class Finish(NamedTuple):
    """Why an answer ended: at an end token, stop id or stop string; at its limit; because nobody wants it any more; unserved; or because
    the engine has failed."""

    reason: Literal["stop", "length", "abort", "timeout", "error"]
    matched: int | str | None = None  # the token or the string at which it stopped


class SequenceState:
    """What has been drawn for one sample of a request.

    It follows from its tokens alone: to restore one, push them again.

    Attributes:
      tokens: all that were drawn, with the one that ended it.
      finish: None while it goes on.
    """

    __slots__ = ("_detokenizer", "_limit", "_matcher", "_params", "_shown", "_stops", "finish", "tokens")

    def __init__(
        self, params: SamplingParams, pieces: TokenBytes, eos: Iterable[int], room: int, continued: Iterable[int] | None = None
    ):
        """Begin an answer.

        Args:
          params: what the request asked for.
          eos: the model's own end tokens.
          room: tokens that the context has room for.
          continued: the tokens of the prompt, if prompt and answer are one text; None if the answer is a text of its own, as in a chat.
        """
        self.tokens: list[int] = []
        self.finish: Finish | None = None
        self._params, self._stops = params, params.stop_set(eos)
        self._limit = room if params.max_tokens is None else min(room, params.max_tokens)
        self._detokenizer = Detokenizer(pieces, continued or ())
        self._matcher = StopMatcher(tuple(params.stop)) if params.stop else None
        self._shown: list[str] = []

    @property
    def text(self) -> str:
        """All that may be shown."""
        return "".join(self._shown)

    def push(self, token: int) -> str:
        """Take in the next token; what of the text may be shown now that might not before.

        Raises:
          RuntimeError: the answer has ended.
        """
        if self.finish:
            raise RuntimeError(f"a token came after the answer had ended ({self.finish.reason})")
        self.tokens.append(token)
        count = len(self.tokens)
        if token in self._stops and count > self._params.min_tokens:
            last = self._detokenizer.push(token) if self._params.include_stop else ""
            return self._end(Finish("stop", token), self._held() + last)
        text = self._detokenizer.push(token)
        if self._matcher is not None:
            text, stop = self._matcher.push(text, armed=count > self._params.min_tokens)
            if stop is not None:
                return self._end(Finish("stop", stop), text + stop if self._params.include_stop else text)
        if count >= self._limit:
            return self._end(Finish("length"), text + self._held())
        self._shown.append(text)
        return text

    def abort(self, reason: Literal["abort", "timeout", "error"] = "abort") -> str:
        """End it now; returns what was held back. Nothing happens if it has ended."""
        return "" if self.finish else self._end(Finish(reason), self._held())

    def _held(self) -> str:
        """What was held back, now that no stop string can follow."""
        return self._matcher.flush() if self._matcher else ""

    def _end(self, finish: Finish, text: str) -> str:
        self.finish = finish
        self._shown.append(text)
        return text
