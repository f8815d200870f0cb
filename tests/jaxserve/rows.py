"""A plain driver of compiled programs: prefill in chunks, then all rows step by step until each has ended. The slow way.

Pages are handed out once, at the start, for the longest that each row can become. Rows that end leave; the rest move to the smallest
bucket that holds them, which changes no token, for a row's result depends on no other row.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.program_set import Program, Programs, blank
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from models.layers import KV


@dataclasses.dataclass
class Row:
    """One sequence: its tokens, where its KV lives, and how far it is."""

    prompt: list[int]
    limit: int  # tokens to generate at most
    sampling: SamplingParams
    eos: frozenset[int]
    pages: np.ndarray  # i32, in order
    cached: int = 0  # tokens of prompt + output whose KV is in the cache
    output: list[int] = dataclasses.field(default_factory=list)

    @property
    def finished(self) -> bool:
        return len(self.output) >= self.limit or (bool(self.output) and self.output[-1] in self.eos)

    @property
    def reason(self) -> str:
        """Why it ended: "stop" at an EOS token, "length" at the limit."""
        return "stop" if self.output and self.output[-1] in self.eos else "length"

    @property
    def pending(self) -> list[int]:
        """Tokens that the next step has to run: the rest of the prompt, or the last token that was drawn."""
        return self.prompt[self.cached :] if self.cached < len(self.prompt) else self.output[-1:]


@dataclasses.dataclass(frozen=True)
class StepRecord:
    """What one step did: which program, its live rows and tokens, the contexts it attended over, and the seconds it took."""

    program: Program
    rows: tuple[int, ...]  # which of the generation's rows were live
    contexts: tuple[int, ...]  # tokens in the cache after the step, of each live row
    counts: tuple[int, ...]  # tokens of this step, of each
    seconds: float  # from dispatch until the tokens are on the host
    host_seconds: float  # packing and unpacking around it
    at: float  # s since the first step began, when its tokens were on the host

    @property
    def live(self) -> int:
        """Rows that did work."""
        return len(self.contexts)

    @property
    def tokens(self) -> int:
        """Live tokens."""
        return sum(self.counts)

    def trips(self) -> dict[str, float]:
        """How often each loop of the program ran."""
        return self.program.trips([list(zip(self.contexts, self.counts, strict=True))])


def pages_needed(prompt: int, limit: int, page: int) -> int:
    """Pages of a row at its longest. The last token that is drawn is never run, so its KV is never written."""
    return -(-(prompt + limit - 1) // page)


def make_rows(
    prompts: Sequence[list[int]], limit: int, sampling: Sequence[SamplingParams], eos: Iterable[int], *, context: int, page: int
) -> list[Row]:
    """Check every prompt and give each row its pages, in order from page 0; nothing is run before all are accepted.

    Raises:
      UserError: an empty prompt, or one that leaves no room in `context` tokens for `limit` new ones.
    """
    rows, at, stop = [], 0, frozenset(eos)
    for i, (prompt, params) in enumerate(zip(prompts, sampling, strict=True)):
        if not prompt:
            raise UserError(f"prompt {i + 1} is empty; give it at least one token")
        if len(prompt) + limit - 1 > context:
            raise UserError(
                f"prompt {i + 1} has {len(prompt)} tokens and {limit} are to follow, which needs a context of "
                f"{len(prompt) + limit - 1}, but the limit is {context}; shorten it, raise --context or lower --max-new-tokens"
            )
        pages = pages_needed(len(prompt), limit, page)
        rows.append(Row(prompt, limit, params, stop, np.arange(at, at + pages, dtype=np.int32)))
        at += pages
    return rows


class Generation:
    """Runs rows to their end. `pool` is the current KV pool; every step replaces it."""

    def __init__(self, rows: list[Row], ladder: Buckets, programs: Programs, pool: KV):
        """Raises UserError, before any step is run, where some step of these rows would fit no program or no page."""
        self.rows, self.ladder, self.programs, self.pool = rows, ladder, programs, pool
        self.records: list[StepRecord] = []
        self._numbers = {id(row): number for number, row in enumerate(rows)}
        self._began: float | None = None
        longest = max((len(row.prompt) + row.limit - 1 for row in rows), default=1)
        for bucket in (ladder.prefill(longest), ladder.decode(max(len(rows), 1), longest), *ladder.buckets()):
            programs[bucket]
        pages = max((int(row.pages.max()) + 1 for row in rows), default=0)
        if pages > pool.units:
            raise UserError(f"the rows need {pages} KV pages and the pool has {pool.units}; take a larger pool or fewer rows")

    def prefill(self, progress: Callable[[int], None] = lambda tokens: None) -> None:
        """Run all prompts, a wave of rows of similar length at a time, each in chunks; each row draws its first token."""
        width, query = self.ladder.chunk
        order = sorted(self.rows, key=lambda row: -len(row.prompt))
        for i in range(0, len(order), width):
            wave = order[i : i + width]
            while wave := [row for row in wave if row.cached < len(row.prompt)]:
                longest = max(row.cached + min(query, len(row.pending)) for row in wave)
                progress(self._step(wave, self.ladder.prefill(longest)).tokens)

    def decode(self, progress: Callable[[int], None] = lambda tokens: None) -> None:
        """Step all unfinished rows together until none is left."""
        while live := [row for row in self.rows if not row.finished]:
            progress(self.decode_step(live).tokens)

    def decode_step(self, live: list[Row]) -> StepRecord:
        """Draw one more token for each of these rows, in the smallest bucket that holds them."""
        longest = max(row.cached for row in live) + 1
        return self._step(live, self.ladder.decode(len(live), longest))

    def _step(self, rows: list[Row], bucket: Bucket) -> StepRecord:
        start = time.perf_counter()
        began = self._began = start if self._began is None else self._began
        program = self.programs[bucket]
        work, counts = self._pack(rows, bucket)
        dispatched = time.perf_counter()
        self.pool, (out,) = program(self.pool, work)
        tokens = np.asarray(out.tokens)[:, 0]
        ended = time.perf_counter()
        for row, count, token in zip(rows, counts, tokens, strict=False):
            row.cached += count
            if row.cached >= len(row.prompt):
                row.output.append(int(token))
        contexts = tuple(row.cached for row in rows)
        seconds, host = ended - dispatched, dispatched - start + time.perf_counter() - ended
        numbers = tuple(self._numbers[id(row)] for row in rows)
        record = StepRecord(program, numbers, contexts, tuple(counts), seconds, host, ended - began)
        self.records.append(record)
        return record

    def _pack(self, rows: list[Row], bucket: Bucket) -> tuple:
        """Fill a blank work of the bucket's shape: (work, tokens of each row)."""
        work = blank(bucket, self.pool.units)
        segment, sampling = work[0].segment, work[0].sampling
        counts = []
        for i, row in enumerate(rows):
            tokens = row.pending[: segment.tokens.shape[1]]
            segment.tokens[i, : len(tokens)] = tokens
            segment.start[i], segment.count[i] = row.cached, len(tokens)
            pages = row.pages[: bucket.width]
            segment.table[i, : len(pages)] = pages
            for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
                getattr(sampling, name)[i] = getattr(row.sampling, name) or 0  # who is greedy needs no seed
            counts.append(len(tokens))
        return work, counts
