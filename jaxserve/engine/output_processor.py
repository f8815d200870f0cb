"""Whose row is whose: from what a step drew to the answers of requests, and to what the scheduler has to know of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from jaxserve.engine.model_runner import InFlightStep, SampledTokens
from jaxserve.engine.prepare_inputs import FeatureInputs
from jaxserve.engine.request_handle import Piece, RequestHandle
from jaxserve.engine.sequence import SequenceState
from jaxserve.programs.logprobs import Logprobs, plain
from jaxserve.scheduling.step_result import StepResult
from jaxserve.speculative.ngram import Acceptance, Lookup, NGram, accepted


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """A row, as the client's side sees it."""

    handle: RequestHandle
    index: int
    answer: SequenceState  # of its handle, and so are its times
    times: list[float]
    special: FeatureInputs | None  # what it asks of features
    top: int | None  # log-probabilities that it wants of each token


class OutputProcessor:
    """All requests that have not ended, by the ids of their rows.

    Attributes:
      samples: by row id.
      drafts: tokens that rows have ready to be verified, by row id.
      acceptance: how often drafts were right.
    """

    def __init__(self, drafter: NGram | None):
        self.samples: dict[int, Sample] = {}
        self.drafts: dict[int, tuple[int, ...]] = {}
        self.acceptance = Acceptance()
        self._drafter, self._lookups = drafter, dict[int, Lookup]()
        self._rows: dict[RequestHandle, list[int]] = {}  # that have not ended, of each request, in the order in which they came

    def add(self, handle: RequestHandle, ids: Iterable[tuple[int, int]]) -> None:
        """A request has come in; `ids` are (row id, sample)."""
        for id, index in ids:
            params = handle.samples[index]
            asks = params.penalised or params.biases or params.min_tokens or handle.scores
            special = FeatureInputs(params, len(handle.prompt), handle.stops, handle.scores) if asks else None
            self._rows.setdefault(handle, []).append(id)
            self.samples[id] = Sample(handle, index, handle.answers[index], handle.token_times[index], special, params.logprobs)

    def drop(self, id: int) -> None:
        """The row has ended, if it has not before."""
        if sample := self.samples.pop(id, None):
            rows = self._rows[sample.handle]
            rows.remove(id)
            if not rows:
                del self._rows[sample.handle]
        self.drafts.pop(id, None)
        self._lookups.pop(id, None)

    def of(self, handle: RequestHandle) -> list[int]:
        """The rows of a request that have not ended."""
        return list(self._rows.get(handle, ()))

    @property
    def handles(self) -> list[RequestHandle]:
        """All requests that have not ended, in the order in which they came."""
        return list(self._rows)

    def expire(self, id: int) -> list[Piece]:
        """A request has waited too long, and all its samples with it: its client is told."""
        handle, pieces = self.samples[id].handle, list[Piece]()
        for row in self.of(handle):
            one = self.samples[row]
            pieces.append(Piece(handle, one.index, (), one.answer.abort("timeout")))
            self.drop(row)
        return pieces

    def special(self, id: int) -> FeatureInputs | None:
        """What a row asks of features; nothing if its client has gone."""
        sample = self.samples.get(id)
        return sample.special if sample else None

    def score(self, id: int, found: Logprobs, line: int, start: int, count: int) -> None:
        """Take in the prompt log-probabilities of a row that ran `count` tokens from position `start`."""
        sample = self.samples.get(id)
        if sample and sample.handle.scores:
            sample.handle.scores.add(found, line, start, count)

    def unpack(self, flight: InFlightStep, drawn: SampledTokens, now: float) -> tuple[StepResult, list[Piece]]:
        """Push the tokens of a step to their answers.

        Args:
          drawn: what the rows of the plan drew.
          now: s, when they were on the host.
        """
        plan, verifies, pieces = flight.plan, flight.plan.verifies, list[Piece]()
        tokens, ended, drafts = list[tuple[int, ...]](), dict[int, str](), dict[int, int]()
        for row, (id, count, draws, got) in enumerate(zip(plan.ids, plan.counts, plan.draws, drawn.tokens, strict=True)):
            if got is None:
                tokens.append(())
                continue
            if len(got) > draws:
                got = got[:draws]
            if verifies:
                offered = self.drafts.pop(id, ())
                got = accepted(offered[: count - 1], got) if draws > 1 else got
            sample, gained = self.samples.get(id), len(got)
            if sample is not None:  # else its client has gone, or it ended while this step was under way
                if gained == 1 and sample.top is None:  # as nearly always
                    sample.times.append(now)
                    text = sample.answer.push(got[0])
                else:
                    text, got = self._pushed(sample, got, drawn.logprobs.get(row), now)
                pieces.append(Piece(sample.handle, sample.index, got, text))
                if finish := sample.answer.finish:
                    ended[id] = finish.reason
                elif self._drafter and (found := self._draft(id, sample, got)):
                    self.drafts[id], drafts[id] = found, len(found)
            if verifies:
                self.acceptance = self.acceptance.verified(draws - 1, gained, len(got))
            tokens.append(got)
        return StepResult(tuple(tokens), ended, drafts), pieces

    @staticmethod
    def _pushed(
        sample: Sample, tokens: tuple[int, ...], found: tuple[Logprobs, int] | None, now: float
    ) -> tuple[str, tuple[int, ...]]:
        """(text that may be shown, tokens up to the one that ended the answer)."""
        answer, times, top = sample.answer, sample.times, sample.top
        text = ""
        for place, token in enumerate(tokens):
            text += answer.push(token)
            times.append(now)
            if top is not None and found is not None:
                logprobs, line = found
                sample.handle.logprobs[sample.index].append(plain(logprobs, line, place, token, top))
            if answer.finish:
                return text, tokens[: place + 1]
        return text, tokens

    def _draft(self, id: int, sample: Sample, tokens: tuple[int, ...]) -> tuple[int, ...]:
        assert self._drafter is not None
        lookup = self._lookups.get(id)
        if lookup is None:
            lookup = self._lookups[id] = self._drafter.begin(sample.handle.known(sample.index))
        else:
            lookup.push(tokens)
        return lookup.draft()
