"""What a policy admits: the caps that protect those who are being served from those who arrive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from models.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class QueueRule:
    """How one priority level waits (the queue policy of Triton's dynamic batcher).

    Attributes:
      size: requests that may wait at once; more are refused. None for any number.
      timeout: s of waiting before a request counts as late.
      late: what happens then: "reject" drops it, "delay" lets it go on waiting behind all that are in time.
    """

    size: int | None = None
    timeout: float = math.inf
    late: Literal["reject", "delay"] = "reject"

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise UserError(f"a queue for {self.size} requests admits none; allow at least 1, or None for any number")
        if not self.timeout > 0:
            raise UserError(f"the queue timeout is {self.timeout} s; it must be above 0")
        if self.late not in ("reject", "delay"):
            raise UserError(f'late requests can\'t be treated as {self.late!r}; choose "reject" or "delay"')


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Caps on admission, the same for every policy.

    Attributes:
      rows: sequences that a worker may have admitted at once (the in-flight cap), samples that are still to be forked included.
      prefill_tokens: prompt tokens that may be admitted and not yet run at once; one prompt alone may be longer. None for no cap.
      context: tokens of the longest sequence that the compiled programs hold; None where memory alone decides.
      queue: how requests wait.
      levels: queue rules of priority levels that have their own.
      preemptions: so often a request may lose its memory. From then on it reserves room for its longest answer and keeps it.
      ahead: plans that may be made before the outcome of earlier ones is known, so that the host works while a step runs.
    """

    rows: int = 64
    prefill_tokens: int | None = None
    context: int | None = None
    queue: QueueRule = QueueRule()
    levels: Mapping[int, QueueRule] = dataclasses.field(default_factory=dict)
    preemptions: int = 3
    ahead: int = 0

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("prefill_tokens", 1), ("context", 1), ("preemptions", 1), ("ahead", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"limits: {name} is {value}; it must be at least {least}")

    def rule(self, priority: int) -> QueueRule:
        """How requests of this level wait."""
        return self.levels.get(priority, self.queue)
