"""One streamed completion as it comes in, event by event: when its tokens came, and whether it came to an end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from jaxserve.load.record import ANSWERED, FAILED

DONE = "[DONE]"


class Stream:
    """The events of a streamed answer.

    A chunk that brings text, or brings none while the answer goes on (the token's text is held back), is a token, or several: then
    `usage` says how many there were in all.

    Attributes:
      times: s, one for each chunk that brought tokens.
      cached: prompt tokens whose KV was there already, as the server's `usage` says; None where it doesn't.
      done: s, when the server said that it was; nan before.
      broken: nothing more of it can be used.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self.cached: int | None = None
        self.done = math.nan
        self.broken = False
        self._finish: str | None = None
        self._error = ""
        self._tokens: int | None = None

    @property
    def output(self) -> int:
        """Tokens of the answer: as the server counts them, or one a chunk."""
        return len(self.times) if self._tokens is None else self._tokens

    def add(self, data: str, now: float) -> None:
        """The data of an event."""
        if data.strip() == DONE:
            self.done = now
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            self._fail(f"a malformed chunk: {data[:60]!r}")
            return
        if not isinstance(chunk, Mapping):
            self._fail(f"a chunk that is no object: {data[:60]!r}")
        elif problem := chunk.get("error"):
            self._fail(str(problem.get("message", problem) if isinstance(problem, Mapping) else problem)[:200])
        else:
            self._take(chunk, now)

    def verdict(self) -> tuple[str, str]:
        """(reason, error) of the record."""
        if self._error:
            return FAILED, self._error
        if self._finish in ANSWERED:
            return self._finish, "" if self._said_so else f"{DONE} is missing"
        if self._finish is not None:
            return FAILED, f"the server ended it: {self._finish}"
        if self._said_so:
            return "stop", "the server named no reason"
        return FAILED, "the stream ended before the answer did"

    @property
    def _said_so(self) -> bool:
        return not math.isnan(self.done)

    def _take(self, chunk: Mapping[str, Any], now: float) -> None:
        choices, usage = chunk.get("choices"), chunk.get("usage")
        if choices:
            choice = choices[0] if isinstance(choices, list) and isinstance(choices[0], Mapping) else None
            if choice is None:
                self._fail(f"a chunk whose choices are {str(choices)[:60]}")
                return
            finish = choice.get("finish_reason")
            if choice.get("text") or finish is None:
                self.times.append(now)
            if finish is not None:
                self._finish = str(finish)
        if isinstance(usage, Mapping):
            tokens, details = usage.get("completion_tokens"), usage.get("prompt_tokens_details")
            self._tokens = tokens if isinstance(tokens, int) else self._tokens
            if isinstance(details, Mapping) and isinstance(details.get("cached_tokens"), int):
                self.cached = details["cached_tokens"]

    def _fail(self, why: str) -> None:
        self._error, self.broken = why, True
