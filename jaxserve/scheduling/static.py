"""Static batches: a fixed set of requests runs until the longest has ended; only then does the next set come in."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable

from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.plan_builder import PlanBuilder
from jaxserve.scheduling.state import Row, State
from jaxserve.values import settle


@dataclasses.dataclass(frozen=True, slots=True)
class Static:
    """The baseline. An idle server takes whoever waits, up to `limits.rows`; rows that end leave their places locked.

    Attributes:
      multi_step: tokens that may be drawn in one plan while nobody waits.
    """

    limits: Limits = dataclasses.field(default_factory=Limits)
    multi_step: int = 1

    def __post_init__(self) -> None:
        settle(self, multi_step=Limits.check(self.limits, self.multi_step))

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        step = PlanBuilder(self.limits, state, now)
        if step.rows:
            return carry_on(step, self.multi_step)
        return begin(step, step.queue)


def begin(step: PlanBuilder, rows: Iterable[Row]) -> tuple[Plan, State]:
    """Start a batch of as many of these rows, in order, as caps and memory admit. Each gets memory for its whole life."""
    for row in rows:
        if not step.admit(row, whole_life=True):
            break
    return step.done(slots=sum(row.width for row in step.rows.values()))


def carry_on(step: PlanBuilder, multi_step: int) -> tuple[Plan, State]:
    """Run a batch on. It locks as many places as it had at its beginning."""
    step.decode(spare=sys.maxsize)
    step.repeat(multi_step)
    return step.done(slots=step.desk.before.slots)
