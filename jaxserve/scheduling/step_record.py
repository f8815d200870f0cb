"""What one step was and what it took: the line of the log and of the status that people read."""

from __future__ import annotations

from typing import NamedTuple


class StepRecord(NamedTuple):
    """One run of a plan by the engine.

    Attributes:
      step: serial number of the plan, from 0.
      worker: which of the workers ran it.
      digest: of the plan.
      programs: names of the buckets that ran, in order.
      rows: that the plan has work for.
      padded: rows of the programs that held nothing.
      prefill, decode, draft: tokens that were run, by kind.
      drawn: tokens that rows got.
      pages: of the worker's pool that were in use, or slots.
      predicted: s of the programs, from the cost model; None where none was asked.
      measured: s from the first dispatch to the arrival of the last tokens (clock).
      host: s that the host took for this step while no program ran: the gap (clock).
      at: s, on the engine's clock, when the step had ended.
    """

    step: int
    worker: int
    digest: str
    programs: tuple[str, ...]
    rows: int
    padded: int
    prefill: int
    decode: int
    draft: int
    drawn: int
    pages: int
    predicted: float | None
    measured: float
    host: float
    at: float
