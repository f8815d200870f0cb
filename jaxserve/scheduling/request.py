"""What a client asks for, as far as scheduling sees it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from jaxserve.values import LARGEST, boolean, integer, number, settle, shown
from models.errors import UserError

PRIORITY = "it must be a whole number; lower ones go first"  # what a priority is


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
      seed: of what it draws, None where nothing is drawn. No policy looks at it; it is here for the step log.
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
    seed: int | None = None
    life: int = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raises UserError for what could never be served."""
        settle(self, id=integer("the request's id", self.id, 0))
        me = f"request {self.id}"
        if not isinstance(self.prompt, Sequence) or isinstance(self.prompt, str | bytes | bytearray | memoryview):
            raise UserError(f"{me} has the prompt {shown(self.prompt)}; give token ids, in a tuple")
        if not len(self.prompt):
            raise UserError(f"request {self.id} has an empty prompt; give it at least one token")
        settle(
            self,
            limit=integer(f"{me}: limit", self.limit, 1),
            arrival=number(f"{me}: arrival", self.arrival, math.isfinite, "it must be finite, in s"),
            priority=integer(f"{me}: priority", self.priority, -LARGEST, rule=PRIORITY),
            deadline=number(
                f"{me}: deadline", self.deadline, lambda seconds: seconds > -math.inf, "it must be in s, or inf for none"
            ),
            samples=integer(f"{me}: samples", self.samples, 1),
            reuse=boolean(f"{me}: reuse", self.reuse),
            seed=None if self.seed is None else integer(f"{me}: seed", self.seed, 0, 2**32 - 1),
        )
        object.__setattr__(self, "life", len(self.prompt) + self.limit - 1)
