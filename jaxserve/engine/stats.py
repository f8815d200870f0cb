"""How an engine stands: what a status line shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.speculative.ngram import Acceptance


class EngineStats(NamedTuple):
    """Counts at one moment; sums are since the engine was made."""

    running: int  # rows that have memory
    waiting: int  # requests, and rows that were preempted
    pages: int  # in use, of all workers; slots where KV is contiguous
    total_pages: int
    steps: int  # plans that were run
    prefill: int  # prompt tokens that were run
    drawn: int  # tokens of answers
    preempted: int  # rows that had to give up their memory
    cached: int  # prompt tokens that were not run, for their KV was there
    acceptance: Acceptance  # of drafts


class Tally:
    """Adds up what a status says. `total` is the number of pages, or slots, of all workers."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._steps = self._prefill = self._drawn = 0

    def add(self, record: StepRecord) -> None:
        """A step was run."""
        self._steps += 1
        self._prefill += record.prefill
        self._drawn += record.drawn

    def status(self, state: State, preempted: int, acceptance: Acceptance) -> EngineStats:
        """With what the scheduler and the loop know."""
        memories = [worker.memory for worker in state.workers]
        return EngineStats(
            running=sum(1 for _ in state.rows),
            waiting=len(state.waiting),
            pages=sum(memory.in_use for memory in memories),
            total_pages=self._total,
            steps=self._steps,
            prefill=self._prefill,
            drawn=self._drawn,
            preempted=preempted,
            cached=sum(memory.found for memory in memories),
            acceptance=acceptance,
        )


def recorder(records: deque[StepRecord], tally: Tally, log: Observer | None) -> Callable[[StepRecord], None]:
    """Takes down every step. No method of an engine: it would keep the engine alive, and so its pools, until a garbage collection."""

    def stepped(record: StepRecord) -> None:
        records.append(record)
        tally.add(record)
        if log:
            log.stepped(record)

    return stepped
