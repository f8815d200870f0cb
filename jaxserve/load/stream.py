"""One streamed answer as it comes in, event by event: when its tokens came, how many they were, and whether it came to an end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxserve.load.recorder import CHUNKS, FAILED, USAGE
from jaxserve.load.sse import ERROR, MESSAGE, Event

DONE = "[done]"  # in small letters; some servers write it as a JSON string
ENDS = {  # what servers call the two ends of an answer
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "tool_calls", "function_call"), "stop"),
    **dict.fromkeys(("length", "max_tokens"), "length"),
}
_MOST = 200  # characters of what a server says


class _Chunk(NamedTuple):
    """time: s. words: it brought some; last: it says that the answer has ended."""

    time: float
    words: bool
    last: bool


class Stream:
    """The chunks of a streamed completion, or of a streamed chat.

    Which chunks are tokens, and how many, is said in docs/load.md, "What is a token over HTTP".

    Attributes:
      cached: prompt tokens whose KV was there already, as the server's `usage` says; None where it doesn't.
      done: s, when the server said that it was; nan before. Nothing counts that comes later.
      broken: nothing more of it can be used.
    """

    def __init__(self) -> None:
        self.cached: int | None = None
        self.done = math.nan
        self.broken = False
        self._chunks: list[_Chunk] = []
        self._words: list[str] = []
        self._finish: str | None = None
        self._error = ""
        self._usage: int | None = None  # tokens, if no words have come since

    @property
    def times(self) -> list[float]:
        """s, one for each chunk that brought tokens."""
        first = next((i for i, chunk in enumerate(self._chunks) if chunk.words), None)
        if first is None:  # special tokens alone have no words; chunks before them, such as a role's, are no tokens
            return [chunk.time for chunk in self._chunks[-self._usage :]] if self._usage else []
        begun = self._chunks[first:]
        words, more = sum(chunk.words for chunk in begun), sum(chunk.words or not chunk.last for chunk in begun)
        if self._usage == len(begun):  # each is one token, the last one too
            return [chunk.time for chunk in begun]
        if self._usage is not None and words <= self._usage < more:  # those without words are none
            return [chunk.time for chunk in begun if chunk.words]
        return [chunk.time for chunk in begun if chunk.words or not chunk.last]

    @property
    def output(self) -> int:
        """Tokens of the answer, counted as `counted` says."""
        return len(self.times) if self._usage is None else self._usage

    @property
    def counted(self) -> str:
        """`USAGE`, or `CHUNKS` where the server doesn't say how many tokens there were."""
        return CHUNKS if self._usage is None else USAGE

    @property
    def text(self) -> str:
        """All words of the answer, those of its reasoning and its calls included."""
        return "".join(self._words)

    def add(self, event: Event, now: float) -> None:
        """An event that has come."""
        data = event.data.strip()
        if self._said_so or (not data and event.name != ERROR):  # a keep-alive
            return
        if data.strip('"').lower() == DONE and event.name != ERROR:
            self.done = now
            return
        try:
            chunk = json.loads(data)
            if event.name == ERROR or _is_error(chunk):
                self.fail(said(chunk))
            elif isinstance(chunk, Mapping):
                self._take(chunk, now)
            elif event.name == MESSAGE:
                self.fail(f"a chunk that is no object: {data[:60]!r}")
        except (ValueError, RecursionError):
            if event.name == ERROR:
                self.fail(said(data))
            elif event.name == MESSAGE:  # an event of another name, such as ping, may hold anything
                self.fail(f"a malformed chunk: {data[:60]!r}")

    def close(self, rest: Event | None, unread: str, now: float) -> None:
        """The body has ended in good order.

        Args:
          rest: an event that no blank line has ended. The standard drops it, and so would a browser; but servers leave the last blank line
            out, and a cut can't make an object of a part of one, so that it is taken if it is whole.
          unread: what came and was no event.
        """
        if rest is not None and not self.broken and (rest.name == ERROR or _is_whole(rest.data)):
            self.add(rest, now)
        if unread and not self._chunks and not self._said_so and not self.broken:
            self.fail(f"no stream of events came, but {unread[:60]!r}")

    def fail(self, why: str) -> None:
        """It has failed, and nothing more of it can be used."""
        self._error, self.broken = why, True

    def verdict(self) -> tuple[str, str]:
        """(reason, error) of the record."""
        if self._error:
            return FAILED, self._error
        if self._finish in ENDS:
            return ENDS[self._finish], "" if self._said_so else "[DONE] is missing"
        if self._finish is not None:
            return FAILED, f"the server ended it: {said(self._finish)}"
        if self._said_so:
            return "stop", "the server named no reason"
        return FAILED, "the stream ended before the answer did"

    @property
    def _said_so(self) -> bool:
        return not math.isnan(self.done)

    def _take(self, chunk: Mapping[str, Any], now: float) -> None:
        if choices := chunk.get("choices"):
            choice = choices[0] if isinstance(choices, list) else None
            if not isinstance(choice, Mapping):
                self.fail(f"a chunk whose choices are {str(choices)[:60]}")
                return
            self._choice(choice, now)
        if isinstance(usage := chunk.get("usage"), Mapping):
            tokens, details = _count(usage.get("completion_tokens")), usage.get("prompt_tokens_details")
            if tokens or (tokens == 0 and not self._words):  # a server that says 0 of words doesn't count
                self._usage = tokens
            if isinstance(details, Mapping) and (cached := _count(details.get("cached_tokens"))) is not None:
                self.cached = cached

    def _choice(self, choice: Mapping[str, Any], now: float) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, Mapping) else {}
        text, content = choice.get("text"), delta.get("content")
        thought = delta.get("reasoning_content") or delta.get("reasoning")  # the same under an old and a new name
        words = "".join(map(_words, (text, thought, content, delta.get("tool_calls"), delta.get("function_call"))))
        finish = choice.get("finish_reason") or None  # some servers say "" for none
        if words:
            self._words.append(words)
            self._usage = None
        if words or isinstance(text, str) or isinstance(content, str):
            self._chunks.append(_Chunk(now, bool(words), finish is not None))
        if finish is not None:
            self._finish = str(finish).lower()


def said(found: Any) -> str:
    """What an error object says, in OpenAI's form or any other: one line that any terminal can show."""
    while isinstance(found, Mapping):
        inner = next((found[key] for key in ("error", "message", "detail") if found.get(key)), None)
        if inner is None:
            break
        found = inner
    line = " ".join(str(found).split())[:_MOST]
    return "".join(letter if letter.isprintable() else "?" for letter in line) or "(nothing said)"


def _is_error(chunk: Any) -> bool:
    """Servers put errors into streams in several forms; null, {} and the like under `error` are none."""
    return isinstance(chunk, Mapping) and bool(chunk.get("error") or "error" in (chunk.get("object"), chunk.get("type")))


def _is_whole(data: str) -> bool:
    """Whether nothing of it can be missing."""
    if data.strip().strip('"').lower() == DONE:
        return True
    try:
        return isinstance(json.loads(data), Mapping)
    except (ValueError, RecursionError):
        return False


def _words(value: Any) -> str:
    """The text in a part of a delta: a string, or lists of parts of contents, of thoughts or of calls."""
    if isinstance(value, list):
        return "".join(map(_words, value))
    if isinstance(value, Mapping):
        return "".join(_words(value.get(key)) for key in ("text", "thinking", "function", "name", "arguments"))
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
