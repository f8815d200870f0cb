"""What a static batch locks and what it reads: slots and bytes, two figures that must not be taken for one another.

A batch that runs until its longest answer ends keeps the places of those that ended before. That wastes no bandwidth: weights are read
once a step whatever the rows, and a row that has ended reads no KV. It wastes places, and the memory that the rows' KV goes on taking.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from costmodel.analytical.rows import check_quantity
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Slots:
    """Places of a batch over all its steps: all of them, and those whose row still ran."""

    all: int
    useful: int

    @property
    def padded(self) -> int:
        return self.all - self.useful

    @property
    def padded_share(self) -> float:
        """Of all places, 0 to 1."""
        return self.padded / self.all


@dataclasses.dataclass(frozen=True)
class Reads:
    """B that a batch reads in all its steps, nominal; padded places add nothing to either.

    Attributes:
      weights: once a step.
      kv: of rows that still run.
      held: mean B of KV, over the steps, that rows which have ended keep from others: memory, no traffic.
    """

    weights: float
    kv: float
    held: float


@dataclasses.dataclass(frozen=True)
class StaticBatch:
    """A batch of answers of `lengths` tokens that all began together; each step draws one token of each.

    Raises:
      UserError: no answers, or one of less than a token.
    """

    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lengths:
            raise UserError("static batch: there are 0 answers; give at least 1")
        if min(self.lengths) < 1:
            raise UserError(f"static batch: an answer has {min(self.lengths)} tokens; it must have at least 1")

    @property
    def steps(self) -> int:
        """Until the longest has ended."""
        return max(self.lengths)

    @property
    def slots(self) -> Slots:
        return Slots(len(self.lengths) * self.steps, sum(self.lengths))

    def reads(self, weights: float, token: float, prompts: Sequence[int]) -> Reads:
        """What is read and what is held.

        Args:
          weights: B of all weights.
          token: B of KV of a token.
          prompts: tokens of each prompt, in the cache before the first step. A row's step i attends to prompt + i tokens, i from 1.

        Raises:
          UserError: not one prompt for each answer, a size that is not above 0.
        """
        if len(prompts) != len(self.lengths):
            raise UserError(f"static batch: {len(prompts)} prompts for {len(self.lengths)} answers; give one for each")
        check_quantity("bytes of weights", weights)
        check_quantity("KV bytes of a token", token)
        check_quantity("prompt tokens", prompts)
        answers, before = np.array(self.lengths, float), np.array(prompts, float)
        attended = answers * before + answers * (answers + 1) / 2
        kept = (before + answers) * (self.steps - answers)
        return Reads(self.steps * weights, float(token * attended.sum()), float(token * kept.sum() / self.steps))
