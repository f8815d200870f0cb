"""What one request asks for: how its tokens are drawn, what is reported of them, and where its answer ends. Plain Python."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Any

from models.errors import UserError

MAX_TEMPERATURE = 3.4e38  # what f32 holds
MAX_LOGPROBS = 20  # alternatives of a token: a program computes so many at most, and OpenAI's API offers no more
MAX_BIASES = 300  # entries of logit_bias, as in OpenAI's API
MAX_SAMPLES = 128
MAX_STOPS = 64  # stop strings, or stop ids
MAX_STOP_CHARACTERS = 1000  # of one stop string: so much of an answer may have to be held back
FORBID, ONLY = -100.0, 100.0  # biases that are more than added
SEED_STEP = 0x9E3779B9  # odd, so that its multiples modulo 2**32 are all different


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """One request's settings. Temperature 0 is greedy; top_k 0, top_p 1, min_p 0 and penalties of 1, 0 and 0 are off.

    From the model's logits to the token, in this order: repetition penalty, presence and frequency penalty, bias, min_tokens;
    temperature; top_k, then top_p and min_p over what it left, where tokens that tie with the last one kept are kept too; the draw.
    A token's draw depends on `seed` and its position alone.

    Attributes:
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
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Iterable[tuple[int, float]] = ()
    stop: str | Sequence[str] = ()
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    include_stop: bool = False
    min_tokens: int = 0
    max_tokens: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        """Raises UserError for a value that cannot be served."""
        for name, kind, fits, rule in _RULES:
            _check(name, getattr(self, name), kind, fits, rule)
        stop = (self.stop,) if isinstance(self.stop, str) else _tuple("stop", self.stop, "a string or several")
        stop_ids = _tuple("stop_ids", self.stop_ids, "token ids")
        for name, given in (("stop", stop), ("stop_ids", stop_ids)):
            if len(given) > MAX_STOPS:
                raise UserError(f"{name} has {len(given)} entries; the limit is {MAX_STOPS}, leave some out")
        for text in stop:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_CHARACTERS:
                raise UserError(f"stop has {_shown(text)}; each must be a string of 1 to {MAX_STOP_CHARACTERS} characters")
        for token in stop_ids:
            _check("a token of stop_ids", token, numbers.Integral, lambda v: v >= 0, "ids are whole numbers from 0")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise UserError(
                f"min_tokens is {self.min_tokens} and max_tokens {self.max_tokens}; lower the one or raise the other"
            )
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_ids", stop_ids)
        object.__setattr__(self, "logit_bias", _pairs(self.logit_bias))

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """`logit_bias` as it is kept."""
        assert isinstance(self.logit_bias, tuple)
        return self.logit_bias

    @property
    def penalised(self) -> bool:
        """Whether it matters which tokens came before."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)

    def stop_set(self, eos: Iterable[int]) -> frozenset[int]:
        """The tokens that end the answer, given the model's own end tokens."""
        return frozenset(self.stop_ids if self.ignore_eos else (*self.stop_ids, *eos))

    def of_sample(self, index: int) -> SamplingParams:
        """The settings of answer `index` of n: of a request for that answer alone, with seed (seed + index * 0x9E3779B9) mod 2**32.

        So answer 0 is what n = 1 gives, no two of one request share a seed, and each can be asked for again by itself.
        """
        return dataclasses.replace(self, n=1, seed=(self.seed + index * SEED_STEP) % 2**32)


def _check(name: str, value: Any, kind: type | UnionType, fits: Callable[[Any], bool], rule: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool) or not fits(value):
        raise UserError(f"{name} is {_shown(value)}; {rule}")


def _shown(value: Any) -> str:
    """On one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:40]}..."


def _tuple(name: str, value: Any, what: str) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise UserError(f"{name} is {_shown(value)}; give {what}, in a list")
    return tuple(value)


def _pairs(given: Any) -> tuple[tuple[int, float], ...]:
    """logit_bias in its kept form, which comes back as it is."""
    try:
        pairs = tuple(given.items() if isinstance(given, Mapping) else given)
        found = {token: value for token, value in pairs}
    except (TypeError, ValueError):
        raise UserError(f"logit_bias is {_shown(given)}; give a mapping from token ids to values") from None
    if len(pairs) > MAX_BIASES:
        raise UserError(f"logit_bias has {len(pairs)} entries; the limit is {MAX_BIASES}, leave some out")
    if len(found) < len(pairs):
        several = next(token for i, (token, _) in enumerate(pairs) if token in [other for other, _ in pairs[:i]])
        raise UserError(f"logit_bias has several values for token {_shown(several)}; a token may have but one")
    for token, value in pairs:
        _check("a token of logit_bias", token, numbers.Integral, lambda v: v >= 0, "ids are whole numbers from 0")
        rule = f"values lie in [{FORBID:g}, {ONLY:g}]"
        _check(f"the logit_bias of token {token}", value, numbers.Real, lambda v: FORBID <= v <= ONLY, rule)
    return tuple(sorted((int(token), float(value)) for token, value in pairs))


_COUNT = f"it must be a whole number from 0 to {MAX_LOGPROBS}, or None"
_RULES: tuple[tuple[str, type | UnionType, Callable[[Any], bool], str], ...] = (
    (
        "temperature",
        numbers.Real,
        lambda v: 0 <= v <= MAX_TEMPERATURE,
        f"it must lie in [0, {MAX_TEMPERATURE}], 0 is greedy",
    ),
    ("top_k", numbers.Integral, lambda v: v >= 0, "it must be at least 1, or 0 for no limit"),
    ("top_p", numbers.Real, lambda v: 0 < v <= 1, "it must lie in (0, 1], 1 for no limit"),
    ("min_p", numbers.Real, lambda v: 0 <= v <= 1, "it must lie in [0, 1], 0 for no limit"),
    ("seed", numbers.Integral, lambda v: 0 <= v < 2**32, "it must lie in [0, 2**32)"),
    ("repetition_penalty", numbers.Real, lambda v: 0.01 <= v <= 100, "it must lie in [0.01, 100], 1 for none"),
    ("presence_penalty", numbers.Real, lambda v: -2 <= v <= 2, "it must lie in [-2, 2], 0 for none"),
    ("frequency_penalty", numbers.Real, lambda v: -2 <= v <= 2, "it must lie in [-2, 2], 0 for none"),
    ("ignore_eos", bool, lambda v: True, "give True or False"),
    ("include_stop", bool, lambda v: True, "give True or False"),
    ("min_tokens", numbers.Integral, lambda v: 0 <= v < 2**31, "it must be at least 0"),
    (
        "max_tokens",
        numbers.Integral | None,
        lambda v: v is None or v >= 1,
        "it must be at least 1, or None for all there is room for",
    ),
    ("n", numbers.Integral, lambda v: 1 <= v <= MAX_SAMPLES, f"it must be a whole number from 1 to {MAX_SAMPLES}"),
    ("logprobs", numbers.Integral | None, lambda v: v is None or 0 <= v <= MAX_LOGPROBS, _COUNT),
    ("prompt_logprobs", numbers.Integral | None, lambda v: v is None or 0 <= v <= MAX_LOGPROBS, _COUNT),
)


def check_params(given: object) -> None:
    """Raises UserError for anything but `SamplingParams`, such as a dictionary of them."""
    if not isinstance(given, SamplingParams):
        raise UserError(f"params is {str(given)[:40]!r}; give SamplingParams, such as SamplingParams(max_tokens=16)")
