"""A request as its client sees it: its answers, growing, and when their tokens came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jaxserve.engine.sequence import SequenceState
from jaxserve.programs.logprobs import PromptLogprobs, TokenLogprob
from jaxserve.sampling_params import SamplingParams
from jaxserve.text.token_bytes import TokenBytes


class RequestHandle:
    """One request. The engine fills it; read it whenever you like.

    Attributes:
      id: of the request in this engine; its samples have the row ids `id` to `id + n - 1`.
      prompt: token ids.
      continued: prompt and answer are one text, as they are not in a chat.
      params: as asked, with the seed that was drawn where there was none.
      answers: one a sample, see `SequenceState`.
      logprobs: of each sample's tokens; empty lists where they are not asked for.
      scores: gathers the prompt's; None where they are not asked for.
      arrival: s, on the engine's clock.
      token_times: of each sample, s at which each token was on the host; tokens from before a restart have none.
      priority, timeout: as asked, see `Engine.submit`.
      error: what ended its answers with "error"; None otherwise.
    """

    def __init__(
        self,
        id: int,
        prompt: list[int],
        params: SamplingParams,
        pieces: TokenBytes,
        eos: Iterable[int],
        room: int,
        *,
        continued: bool,
        arrival: float,
        priority: int,
        timeout: float,
    ):
        self.id, self.prompt, self.params, self.continued = id, prompt, params, continued
        self.arrival, self.priority, self.timeout = arrival, priority, timeout
        self.stops = params.stop_set(eos)
        self.samples = [params.of_sample(i) for i in range(params.n)]
        before = prompt if continued else None
        self.answers = [SequenceState(each, pieces, eos, room, before) for each in self.samples]
        self.logprobs: list[list[TokenLogprob]] = [[] for _ in self.samples]
        self.scores = None if params.prompt_logprobs is None else PromptLogprobs(prompt, params.prompt_logprobs)
        self.token_times: list[list[float]] = [[] for _ in self.samples]
        self.error: str | None = None

    def __repr__(self) -> str:
        state = ", ".join(answer.finish.reason if answer.finish else f"{len(answer.tokens)} tokens" for answer in self.answers)
        return f"Handle({self.id}: {len(self.prompt)} prompt tokens; {state})"

    @property
    def finished(self) -> bool:
        """All samples have ended."""
        return all(answer.finish for answer in self.answers)

    def fail(self, error: str) -> None:
        """The engine can't go on: all answers that have not ended end."""
        self.error = error
        for answer in self.answers:
            answer.abort("error")

    @property
    def prompt_logprobs(self) -> list[TokenLogprob | None] | None:
        """Of each token of the prompt, None for the first; None while they are not all there, or where they are not asked for."""
        return self.scores.entries if self.scores and self.scores.complete else None

    def known(self, sample: int) -> list[int]:
        """The tokens of a sample, prompt and answer."""
        return [*self.prompt, *self.answers[sample].tokens]


class Piece(NamedTuple):
    """What a step brought one sample of a request: tokens, and the text that may be shown now and might not before."""

    handle: RequestHandle
    sample: int
    tokens: tuple[int, ...]
    text: str
