"""What a policy admits: the caps that protect those who are being served from those who arrive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from jaxserve.values import LARGEST, integer, number, settle, shown
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
        if self.size is not None:
            rule = "allow at least 1, or None for any number"
            settle(self, size=integer("the number of requests that may wait", self.size, 1, rule=rule))
        above = "it must be above 0, in s"
        settle(self, timeout=number("the queue timeout", self.timeout, lambda seconds: seconds > 0, above))
        if not isinstance(self.late, str) or self.late not in ("reject", "delay"):
            raise UserError(f'late requests can\'t be treated as {shown(self.late)}; choose "reject" or "delay"')


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
            if value is not None or name not in ("prefill_tokens", "context"):
                settle(self, **{name: integer(f"limits: {name}", value, least)})
        if not isinstance(self.queue, QueueRule):
            raise UserError(f"limits: queue is {shown(self.queue)}; give a QueueRule")
        if not isinstance(self.levels, Mapping) or not all(isinstance(rule, QueueRule) for rule in self.levels.values()):
            raise UserError(f"limits: levels is {shown(self.levels)}; give a mapping from priorities to QueueRules")
        levels = {integer("limits: a priority of levels", level, -LARGEST): rule for level, rule in self.levels.items()}
        settle(self, levels=levels)

    @staticmethod
    def check(limits: object, multi_step: object) -> int:
        """What every policy has: its limits, and `multi_step`, which comes back plain.

        Raises:
          UserError: they are no `Limits`, or it is no whole number of at least 1.
        """
        if not isinstance(limits, Limits):
            raise UserError(f"the policy's limits are {shown(limits)}; give Limits, such as Limits(rows=8)")
        return integer("multi_step", multi_step, 1)

    def rule(self, priority: int) -> QueueRule:
        """How requests of this level wait."""
        return self.levels.get(priority, self.queue)
