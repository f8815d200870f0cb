"""From what a client asks to a request that can be served, or a clear refusal. All that a request carries is checked here."""

from __future__ import annotations

import contextlib
import math
import operator
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxserve.engine.request_handle import RequestHandle
from jaxserve.programs.features import Features
from jaxserve.sampling_params import SamplingParams, check_params
from jaxserve.scheduling.request import PRIORITY, Request
from jaxserve.text.token_bytes import TokenBytes
from jaxserve.values import boolean, integer, number, shown
from models.errors import UserError
from models.text.chat_template import Message
from models.text.tokenizer import Tokenizer

MAX_PRIORITY = 2**31 - 1  # and as far below 0
WANTED = "give a text, token ids as whole numbers, or the messages of a chat"


class Prompt(NamedTuple):
    """What the model reads, however it was given.

    Attributes:
      tokens: ids.
      continued: the answer goes on with the same text; False where it is a text of its own, as in a chat.
    """

    tokens: tuple[int, ...]
    continued: bool


Given: TypeAlias = "str | Sequence[int] | np.ndarray | Sequence[Message] | Mapping[str, Any] | Prompt"  # what `read` takes


def fresh_seed() -> int:
    """A seed that nobody can foretell, from 0 to 2**32 - 1."""
    return secrets.randbits(32)


def read(given: Given, tokenizer: Tokenizer, vocab: int, *, raw: bool = False, **chat: Any) -> Prompt:
    """The prompt that is meant.

    Args:
      given: a text; token ids, as a sequence or an array [tokens]; the messages of a conversation, each a mapping with role and
        content; or, as vLLM writes the first two, {"prompt": text} or {"prompt_token_ids": ids}. A `Prompt` stays as it is.
      vocab: ids lie below.
      raw: a text is taken as it is, for the model to go on with. By default it is the user's turn of a chat where the model has a template.
      chat: of messages, more for the template: see `Tokenizer.render_chat`.

    Raises:
      UserError: it is something else, or empty; an id is not the model's; the model has no chat template.
    """
    raw = boolean("raw", raw)
    continued = raw or not tokenizer.chat_template
    if isinstance(given, Prompt):
        return given
    if isinstance(given, Mapping):
        given = _of_vllm(given)
    tokens: Sequence[int]
    if isinstance(given, str):
        tokens = tokenizer.encode(given) if raw else tokenizer.encode_prompt(given)
    elif isinstance(given, list | tuple) and given and isinstance(given[0], Mapping):
        if raw:
            raise UserError("messages are turns of a chat, and raw is of a text; leave raw out")
        tokens, continued = tokenizer.encode_chat(_conversation(given), **chat), False
    else:
        tokens = _ids(given)
    if not tokens:
        raise UserError("the prompt is empty; give it at least one token")
    if not 0 <= min(tokens) <= max(tokens) < vocab:
        wrong = next(token for token in tokens if not 0 <= token < vocab)
        raise UserError(f"the prompt has token {shown(wrong)}; ids lie in 0 to {vocab - 1}")
    return Prompt(tuple(tokens), continued)


def read_all(given: Iterable[Given], tokenizer: Tokenizer, vocab: int, *, raw: bool = False) -> list[Prompt]:
    """Several prompts, see `read`; the one that is refused is named by its number, from 1."""
    found = []
    for place, one in enumerate(given, start=1):
        with numbered(place):
            found.append(read(one, tokenizer, vocab, raw=raw))
    return found


@contextlib.contextmanager
def numbered(place: int) -> Iterator[None]:
    """Whatever is refused within is of the prompt with this number, from 1."""
    try:
        yield
    except UserError as error:
        raise UserError(f"prompt {place}: {error}") from None


def _of_vllm(given: Mapping[str, Any]) -> Any:
    """The text or the ids of a prompt that is a mapping; where it has both, the ids are what the model reads."""
    if "role" in given or "messages" in given:
        raise UserError(f"the prompt is {shown(given)}, a message or messages; give llm.chat a list of messages")
    wrong = [key for key in given if key not in ("prompt", "prompt_token_ids") and given[key] is not None]
    if wrong or (given.get("prompt") is None and given.get("prompt_token_ids") is None):
        reason = f"{shown(wrong[0])} means nothing here" if wrong else "it has neither"
        raise UserError(f'the prompt is {shown(given)}; give {{"prompt": text}} or {{"prompt_token_ids": ids}}: {reason}')
    name = "prompt" if given.get("prompt_token_ids") is None else "prompt_token_ids"
    if isinstance(given[name], str) != (name == "prompt") or isinstance(given[name], Mapping):
        raise UserError(
            f"{name} is {shown(given[name])}; give {'a text' if name == 'prompt' else 'token ids as whole numbers'}"
        )
    return given[name]


def _ids(given: Any) -> list[int]:
    """Token ids as plain numbers. Bytes, sets, mappings and iterators have numbers too, and are none."""
    if hasattr(given, "__array__") and not isinstance(given, Sequence):
        array = np.asarray(given)
        if array.ndim == 1 and array.dtype.kind in "iu":
            return array.tolist()
    elif isinstance(given, Sequence) and not isinstance(given, bytes | bytearray | memoryview):
        try:
            if not any(isinstance(token, bool | np.bool_) for token in given):
                return list(map(operator.index, given))
        except TypeError:
            pass
    raise UserError(f"the prompt is {shown(given)}; {WANTED}")


def _conversation(given: Sequence[Any]) -> list[Message]:
    """Messages whose contents are texts: the parts of a content are joined by line ends, as vLLM does for templates that take texts."""
    found = list[Message]()
    for i, message in enumerate(given, start=1):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise UserError(f'message {i} is {shown(message)}; give {{"role": "user", "content": text}}')
        content = message.get("content")
        if isinstance(content, list | tuple):
            texts = [
                part["text"] for part in content if isinstance(part, Mapping) and part.get("type") == "text" and "text" in part
            ]
            if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
                raise UserError(
                    f'message {i} has the content {shown(content)}; its parts must be {{"type": "text", "text": ...}}'
                )
            content = "\n".join(texts)
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            raise UserError(f"message {i} has the content {shown(content)}; give a text")
        found.append({**message, "content": content})
    return found


class InputProcessor:
    """What an engine can serve.

    Args:
      vocab: ids lie below.
      features: what its programs can do.
      context: tokens of the longest sequence.
      seeds: asked for the seed of each request that has none and draws.

    Attributes:
      eos: the model's own end tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocab: int, features: Features, context: int, seeds: Callable[[], int] = fresh_seed
    ):
        self.context, self.eos = context, frozenset(tokenizer.eos_tokens)
        self._tokenizer, self._features, self._vocab, self._seeds = tokenizer, features, vocab, seeds
        self._pieces = TokenBytes(tokenizer)

    def read(self, prompt: Given, raw: bool = False, **chat: Any) -> Prompt:
        """The prompt that is meant, see `read`."""
        return read(prompt, self._tokenizer, self._vocab, raw=raw, **chat)

    def settled(self, params: SamplingParams) -> SamplingParams:
        """The same with a seed, if anything is to be drawn.

        Raises:
          UserError: it is no SamplingParams.
        """
        check_params(params)
        return params.with_seed(self._seeds)

    def limit(self, prompt: Sequence[int], params: SamplingParams) -> int:
        """Tokens that an answer may have.

        Args:
          prompt: token ids that `read` has found right.

        Raises:
          UserError: no params, a request too long for the context, or a feature that is not compiled.
        """
        check_params(params)
        self._features.check(params, params.stop_set(self.eos), self._vocab)
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
        prompt: Prompt,
        params: SamplingParams,
        *,
        arrival: float,
        priority: int = 1,
        timeout: float = math.inf,
    ) -> Request:
        """What the scheduler has to know of it.

        Args:
          priority, timeout: as `checked` gives them.

        Raises:
          UserError: see `limit`.
        """
        limit, reuse = (
            self.limit(prompt.tokens, params),
            params.prompt_logprobs is None,
        )  # else every token of the prompt must be run
        return Request(id, prompt.tokens, limit, arrival, priority, arrival + timeout, params.n, reuse, params.seed)

    def handle(self, id: int, prompt: Prompt, params: SamplingParams, **when: Any) -> RequestHandle:
        """A handle for an accepted request; `when` is arrival, priority and timeout."""
        tokens = list(prompt.tokens)
        return RequestHandle(id, tokens, params, self._pieces, self.eos, self._room(tokens), continued=prompt.continued, **when)

    def _room(self, prompt: Sequence[int]) -> int:
        return self.context - len(prompt) + 1  # the last token that is drawn is never run


def checked(priority: Any, timeout: Any) -> tuple[int, float]:
    """Both as plain numbers.

    Raises:
      UserError: the priority is no whole number, or the timeout no time in s.
    """
    rule = "it must be s of waiting, or inf for any time"
    return (
        integer("the priority", priority, -MAX_PRIORITY, MAX_PRIORITY, f"{PRIORITY}, from -{MAX_PRIORITY} to {MAX_PRIORITY}"),
        number("the timeout", timeout, lambda seconds: seconds > -math.inf, rule),
    )
