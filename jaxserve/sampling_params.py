"""What one request asks for: how its tokens are drawn, what is reported of them, and where its answer ends. Plain Python."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxserve.values import LARGEST, boolean, integer, number, settle, shown
from jaxserve.vllm_names import SAMPLING, takes_names_of
from models.errors import UserError

MAX_TEMPERATURE = 3.4e38  # what f32 holds
MAX_LOGPROBS = 20  # alternatives of a token: a program computes so many at most, and OpenAI's API offers no more
MAX_BIASES = 300  # entries of logit_bias, as in OpenAI's API
MAX_SAMPLES = 128
MAX_STOPS = 64  # stop strings, or stop ids
MAX_STOP_CHARACTERS = 1000  # of one stop string: so much of an answer may have to be held back
MAX_TOKEN = 2**31 - 1  # ids, and numbers of tokens
FORBID, ONLY = -100.0, 100.0  # biases that are more than added
SEED_STEP = 0x9E3779B9  # odd, so that its multiples modulo 2**32 are all different


@takes_names_of(SAMPLING)
@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """One request's settings. Temperature 0 is greedy; top_k 0 or -1, top_p 1, min_p 0 and penalties of 1, 0 and 0 are off.

    From the model's logits to the token, in this order: repetition penalty, presence and frequency penalty, bias, min_tokens;
    temperature; top_k, then top_p and min_p over what it left, where tokens that tie with the last one kept are kept too; the draw.
    A token's draw depends on `seed` and its position alone.

    vLLM's other names for these, such as `stop_token_ids`, are taken too: docs/from-vllm.md. Numbers are kept as Python's own.

    Attributes:
      seed: from 0 to 2**32 - 1. None: the engine gives each request that draws a fresh one, which its result names.
      repetition_penalty: the logit of every token that stands in the prompt or the answer is divided by it where positive and
        multiplied where negative (Keskar et al. 2019, section 4.1, over the tokens that Hugging Face's processor takes).
      presence_penalty, frequency_penalty: taken from the logit of every token of the answer so far, once, and once for each time
        that it was drawn (OpenAI's API). The prompt does not count.
      logit_bias: {token: value}, added to logits. -100 is more: such a token is never drawn. If a token has 100, only those that
        have 100 are drawn. Kept as pairs, by token.
      stop: the answer ends before the first of these strings that is complete in its text; a string or several.
      stop_ids: the answer ends at one of these tokens as at one of the model's own end tokens.
      ignore_eos: the model's own end tokens do not end the answer.
      include_stop: the text keeps what ended the answer.
      min_tokens: so many tokens come before the one that ends the answer: until then no end token and no stop id is drawn, and
        stop strings do not count.
      max_tokens: of the answer; None for what the context has room for.
      n: answers; answer i is drawn with `of_sample(i)`.
      logprobs: of every drawn token, with so many of the likeliest ones: natural logarithms of the model's own distribution,
        before anything above has changed it. None for none.
      prompt_logprobs: the same of the prompt's tokens.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Iterable[tuple[int, float]] | None = ()
    stop: str | Sequence[str] | None = ()
    stop_ids: Sequence[int] | None = ()
    ignore_eos: bool = False
    include_stop: bool = False
    min_tokens: int = 0
    max_tokens: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        """Raises UserError for a value that cannot be served."""
        for name, kept in _KEPT.items():
            settle(self, **{name: kept(name, getattr(self, name))})
        stop = (self.stop,) if isinstance(self.stop, str) else _several("stop", self.stop, "a string or several", MAX_STOPS)
        for text in stop:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_CHARACTERS:
                raise UserError(f"stop has {shown(text)}; each must be a string of 1 to {MAX_STOP_CHARACTERS} characters")
        stop_ids = [_token("stop_ids", token) for token in _several("stop_ids", self.stop_ids, "token ids", MAX_STOPS)]
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise UserError(
                f"min_tokens is {self.min_tokens} and max_tokens {self.max_tokens}; lower the one or raise the other"
            )
        settle(self, stop=tuple(map(str, stop)), stop_ids=tuple(stop_ids), logit_bias=_pairs(self.logit_bias))

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """`logit_bias` as it is kept."""
        assert isinstance(self.logit_bias, tuple)
        return self.logit_bias

    @property
    def penalised(self) -> bool:
        """Whether it matters which tokens came before."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)

    @property
    def greedy(self) -> bool:
        """Whether each token is the likeliest one, so that nothing is drawn and no seed is needed."""
        return self.temperature == 0

    def stop_set(self, eos: Iterable[int]) -> frozenset[int]:
        """The tokens that end the answer, given the model's own end tokens."""
        assert isinstance(self.stop_ids, tuple)
        return frozenset(self.stop_ids if self.ignore_eos else (*self.stop_ids, *eos))

    def with_seed(self, seed: Callable[[], int]) -> SamplingParams:
        """The same with a seed, which is asked for only where there is none and something is drawn."""
        return self if self.greedy or self.seed is not None else dataclasses.replace(self, seed=seed())

    def of_sample(self, index: int) -> SamplingParams:
        """The settings of answer `index` of n: of a request for that answer alone, with seed (seed + index * 0x9E3779B9) mod 2**32.

        So answer 0 is what n = 1 gives, no two of one request share a seed, and each can be asked for again by itself. Where there is no
        seed, the answers have none either.
        """
        return dataclasses.replace(self, n=1, seed=None if self.seed is None else (self.seed + index * SEED_STEP) % 2**32)


def check_params(given: object) -> None:
    """Raises UserError for anything but `SamplingParams`, such as a dictionary of them."""
    if not isinstance(given, SamplingParams):
        raise UserError(f"params is {shown(given)}; give SamplingParams, such as SamplingParams(max_tokens=16)")


def _several(name: str, value: Any, what: str, most: int) -> tuple[Any, ...]:
    """The entries of a list, at most so many; none for None."""
    if value is None:
        return ()
    listed = isinstance(value, Iterable) and getattr(value, "shape", None) != ()  # an array without dimensions has no entries
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not listed:
        raise UserError(f"{name} is {shown(value)}; give {what}, in a list")
    found = tuple(itertools.islice(value, most + 1))
    if len(found) > most:
        raise UserError(f"{name} has more than {most} entries, which is the limit; leave some out")
    return found


def _token(name: str, value: Any) -> int:
    return integer(f"a token of {name}", value, 0, MAX_TOKEN, "ids are whole numbers from 0")


def _pairs(given: Any) -> tuple[tuple[int, float], ...]:
    """logit_bias in its kept form, which comes back as it is."""
    what = "a mapping from token ids to values"
    entries = given.items() if isinstance(given, Mapping) else given
    if isinstance(given, str) or not (given is None or isinstance(entries, Iterable)):
        raise UserError(f"logit_bias is {shown(given)}; give {what}")
    found = dict[int, float]()
    for entry in _several("logit_bias", entries, what, MAX_BIASES):
        try:
            token, value = entry
        except (TypeError, ValueError):
            raise UserError(f"logit_bias is {shown(given)}; give {what}") from None
        token, fits = _token("logit_bias", token), lambda v: FORBID <= v <= ONLY
        value = number(f"the logit_bias of token {token}", value, fits, f"values lie in [{FORBID:g}, {ONLY:g}]")
        if token in found:
            raise UserError(f"logit_bias has several values for token {token}; a token may have but one")
        found[token] = value
    return tuple(sorted(found.items()))


def _real(fits: Callable[[float], bool], rule: str) -> Callable[[str, Any], float]:
    return lambda name, value: number(name, value, fits, rule)


def _whole(least: int, most: int, rule: str, *, none: bool = False) -> Callable[[str, Any], int | None]:
    return lambda name, value: None if value is None and none else integer(name, value, least, most, rule)


_COUNT = f"it must be a whole number from 0 to {MAX_LOGPROBS}, or None"
_KEPT: Mapping[str, Callable[[str, Any], Any]] = {
    "temperature": _real(lambda v: 0 <= v <= MAX_TEMPERATURE, f"it must lie in [0, {MAX_TEMPERATURE}], 0 is greedy"),
    "top_k": lambda name, value: max(integer(name, value, -1, LARGEST, "it must be at least 1, or 0 or -1 for no limit"), 0),
    "top_p": _real(lambda v: 0 < v <= 1, "it must lie in (0, 1], 1 for no limit"),
    "min_p": _real(lambda v: 0 <= v <= 1, "it must lie in [0, 1], 0 for no limit"),
    "seed": _whole(0, 2**32 - 1, "it must lie in [0, 2**32), or be None for a fresh one", none=True),
    "repetition_penalty": _real(lambda v: 0.01 <= v <= 100, "it must lie in [0.01, 100], 1 for none"),
    "presence_penalty": _real(lambda v: -2 <= v <= 2, "it must lie in [-2, 2], 0 for none"),
    "frequency_penalty": _real(lambda v: -2 <= v <= 2, "it must lie in [-2, 2], 0 for none"),
    "ignore_eos": boolean,
    "include_stop": boolean,
    "min_tokens": _whole(0, MAX_TOKEN, "it must be at least 0"),
    "max_tokens": _whole(1, MAX_TOKEN, "it must be at least 1, or None for all there is room for", none=True),
    "n": _whole(1, MAX_SAMPLES, f"it must be a whole number from 1 to {MAX_SAMPLES}"),
    "logprobs": _whole(0, MAX_LOGPROBS, _COUNT, none=True),
    "prompt_logprobs": _whole(0, MAX_LOGPROBS, _COUNT, none=True),
}
