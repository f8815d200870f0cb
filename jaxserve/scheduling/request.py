"""What a client asks for, as far as scheduling sees it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from models.errors import UserError


class QueueFull(UserError):
    """Refused because too many wait already; asking again later may help."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One prompt. How tokens are drawn and where an answer stops are no matter of scheduling.

    Attributes:
      id: ascends from request to request; the samples of a request take the ids `id` to `id + samples - 1`.
      prompt: token ids, an immutable sequence. Where memory does not look for known prefixes only its length matters, so that a
        simulation may give `range(n)`.
      limit: tokens to generate at most, of each sample.
      arrival: s, on the clock of `now`.
      priority: level; lower ones go first.
      deadline: s; a request that has not been admitted by then is dropped.
      samples: answers to the one prompt, whose KV they share.
      reuse: whether a beginning of the prompt that memory knows already may be left out. Not where something of every prompt token is
        wanted, such as its log-probability.
      life: tokens that a sample runs at most: the last token that is drawn is never run.
    """

    id: int
    prompt: Sequence[int]
    limit: int
    arrival: float = 0.0
    priority: int = 1
    deadline: float = math.inf
    samples: int = 1
    reuse: bool = True
    life: int = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raises UserError for what could never be served."""
        if not len(self.prompt):
            raise UserError(f"request {self.id} has an empty prompt; give it at least one token")
        for name in ("limit", "samples"):
            if getattr(self, name) < 1:
                raise UserError(f"request {self.id}: {name} is {getattr(self, name)}; it must be at least 1")
        if not math.isfinite(self.arrival) or math.isnan(self.deadline):
            raise UserError(
                f"request {self.id} arrives at {self.arrival} with deadline {self.deadline}; both are seconds, the arrival finite"
            )
        object.__setattr__(self, "life", len(self.prompt) + self.limit - 1)
