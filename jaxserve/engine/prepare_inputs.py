"""From a plan to the arrays of the programs that run it. Which programs, and with which rows, says `dispatch.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxserve.engine.input_batch import InputBatch, tokens_seen
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.programs.features import Features
from jaxserve.programs.logit_bias import LogitBias
from jaxserve.programs.logprobs import PromptLogprobs
from jaxserve.programs.penalties import Penalties
from jaxserve.programs.sampling import RowSampling
from jaxserve.programs.step import Repeat, Work
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.plan import Plan
from models.segment import Segment


@dataclasses.dataclass(frozen=True)
class FeatureInputs:
    """What a row asks of a program's features.

    Attributes:
      params: its settings.
      prompt: tokens of its prompt.
      stops: tokens that end its answer.
      scores: gathers its prompt's log-probabilities, where they are wanted.
    """

    params: SamplingParams
    prompt: int
    stops: frozenset[int]
    scores: PromptLogprobs | None


@dataclasses.dataclass(frozen=True)
class Part:
    """The live rows of one segment, the first of its rows.

    Attributes:
      rows: i64 [n], which row of the plan each is.
      seats, starts, counts: i64 [n] of each.
      owners: i64 [n], who has the seats; a seat may have another owner by the time that the program is called, or its tokens come.
      lines: i64 [m], those of them whose sample after their last token is wanted.
    """

    rows: np.ndarray
    seats: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    owners: np.ndarray
    lines: np.ndarray


@dataclasses.dataclass(frozen=True)
class Call:
    """One program of a step, its arguments, and what its segments hold."""

    bucket: Bucket
    work: tuple[Work, ...]
    parts: tuple[Part, ...]

    @property
    def live(self) -> int:
        """Rows (of prompts, pieces) that are no padding."""
        return sum(len(part.rows) for part in self.parts)

    @property
    def padded(self) -> int:
        """Rows that are."""
        return sum(rows for rows, _ in self.bucket.shape) - self.live

    def fill(self, seats: InputBatch) -> None:
        """Put in what wasn't known when it was packed: the token that each row drew last, and all before it.

        A row that has left its seat meanwhile keeps what was packed: of a prompt that is all, and others may have been admitted upon it.
        """
        tokens = seats.tokens
        for part, work in zip(self.parts, self.work, strict=True):
            live = len(part.rows)
            here = seats.owner[part.seats] == part.owners
            work.segment.tokens[:live, 0] = np.where(here, tokens[part.seats, part.starts], work.segment.tokens[:live, 0])
            if work.penalties is not None:
                known = tokens[part.seats, : work.penalties.history.shape[1]]
                work.penalties.history[:live, : known.shape[1]] = known


class InputPreparer:
    """Packs the plans of one worker.

    Args:
      ladder: the programs that there are.
      seats: the rows.
      features: of the programs.
      units: of the worker's pool.
    """

    def __init__(self, ladder: Buckets, seats: InputBatch, features: Features, units: int):
        self.ladder, self.seats, self.features, self.units = ladder, seats, features, units

    def pack(
        self, plan: Plan, drafts: Mapping[int, Sequence[int]], special: Callable[[int], FeatureInputs | None]
    ) -> list[Call]:
        """The programs of a plan, in the order in which they are to run. Every row has its seat and its table there.

        Args:
          drafts: of rows that verify some, by id.
          special: of a row, what it asks of features; None for nothing.
        """
        counts, draws, seats = np.array(plan.counts, np.int64), np.array(plan.draws, np.int64) > 0, self.seats.of(plan.ids)
        every, calls = np.arange(len(counts)), list[Call]()
        for run in dispatch(plan, self.ladder):
            assert run.bucket is not None
            parts = []
            if run.rows:
                rows = every if len(run.rows) == len(every) else np.array(run.rows, np.int64)
                parts.append(self._part(rows, seats[rows], np.array(run.starts, np.int64), counts[rows], draws[rows]))
            if run.pieces:
                starts, tokens, rows = np.array(run.pieces, np.int64).T
                last = starts + tokens == np.array(plan.starts, np.int64)[rows] + counts[rows]  # of its prompt in this plan
                parts.append(self._part(rows, seats[rows], starts, tokens, last & draws[rows]))
            calls.append(self._call(run.bucket, tuple(parts), plan, drafts, special))
        return calls

    def _part(self, rows: np.ndarray, seats: np.ndarray, starts: np.ndarray, counts: np.ndarray, draws: np.ndarray) -> Part:
        return Part(rows, seats, starts, counts, self.seats.owner[seats], np.flatnonzero(draws))

    def _call(
        self,
        bucket: Bucket,
        parts: tuple[Part, ...],
        plan: Plan,
        drafts: Mapping[int, Sequence[int]],
        special: Callable[[int], FeatureInputs | None],
    ) -> Call:
        work = []
        for (rows, query), part in zip(bucket.shape, parts, strict=True):
            segment = self._segment(rows, query, bucket.width, part)
            if query > 1:
                self._known(segment, part, plan, drafts)
            else:
                segment.tokens[: len(part.rows), 0] = self.seats.tokens[
                    part.seats, part.starts
                ]  # of a prompt's last it is known
            repeat = Repeat(self._column(self.seats.stops, rows, part, -1), np.int32(plan.steps)) if bucket.steps > 1 else None
            work.append(self._featured(Work(segment, self._sampling(rows, part), repeat=repeat), rows, part, plan, special))
        return Call(bucket, tuple(work), parts)

    def _segment(self, rows: int, query: int, width: int, part: Part) -> Segment:
        n = len(part.rows)
        table = np.full((rows, width), self.units, np.int32)
        table[:n] = self.seats.tables[part.seats, :width]
        start, count = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        start[:n], count[:n] = part.starts, part.counts
        return Segment(np.zeros((rows, query), np.int32), start, count, table)

    def _known(self, segment: Segment, part: Part, plan: Plan, drafts: Mapping[int, Sequence[int]]) -> None:
        """The tokens of prompts, and drafts after the token that a row drew last."""
        lines = zip(part.rows.tolist(), part.seats.tolist(), part.starts.tolist(), part.counts.tolist(), strict=True)
        for i, (row, seat, start, count) in enumerate(lines):
            if plan.draws[row] > 1:
                segment.tokens[i, 1:count] = drafts[plan.ids[row]][: count - 1]
            else:
                segment.tokens[i, :count] = self.seats.tokens[seat, start : start + count]

    def _sampling(self, rows: int, part: Part) -> RowSampling:
        live = len(part.rows)
        bits = np.zeros((len(self.seats.bits), rows), np.uint32)
        bits[:, :live] = self.seats.bits.take(part.seats, axis=1)
        settings = tokens_seen(bits)
        settings["top_p"][live:] = 1
        return RowSampling(**settings)

    @staticmethod
    def _column(values: np.ndarray, rows: int, part: Part, padding: int) -> np.ndarray:
        column = np.full((rows, *values.shape[1:]), padding, values.dtype)
        column[: len(part.rows)] = values[part.seats]
        return column

    def _featured(self, work: Work, rows: int, part: Part, plan: Plan, special: Callable[[int], FeatureInputs | None]) -> Work:
        features = self.features
        penalties = Penalties.blank(rows, features.history) if features.history else None
        biases = LogitBias.blank(rows, features.biases) if features.biases else None
        scored = features.prompt_logprobs is not None and work.repeat is None  # rows that are repeated are past their prompt
        following = np.zeros(work.segment.tokens.shape, np.int32) if scored else None
        if penalties is None and biases is None and following is None:
            return work
        for i, row in enumerate(part.rows.tolist()):
            asks = special(plan.ids[row])
            if asks is None:
                continue
            if penalties is not None and asks.params.penalised:
                penalties.put(i, asks.params, (), asks.prompt)
            if biases is not None:
                biases.put(i, asks.params, asks.prompt, asks.stops)
            if following is not None and asks.scores is not None:
                after = asks.scores.following(int(part.starts[i]), int(part.counts[i]))
                following[i, : len(after)] = after
        return dataclasses.replace(work, penalties=penalties, biases=biases, following=following)
