"""Dynamic batching: requests wait a little for company, and a batch, once it has left, runs like a static one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.plan_builder import PlanBuilder
from jaxserve.scheduling.queue import Queue
from jaxserve.scheduling.state import Row, State
from jaxserve.scheduling.static import begin, carry_on
from jaxserve.values import integer, number, settle, shown
from models.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class Dynamic:
    """The dynamic batcher of Triton Inference Server: preferred sizes, largest size, and a delay that bounds the wait for them.

    Sizes count rows: a request for several samples is an item of that size. Requests leave in the order of priority and arrival.
    While a batch runs, others gather however short the delay is, and leave together when it has ended.

    Attributes:
      limits: `rows` is the largest batch; `queue` and `levels` say how requests wait, and what becomes of those that wait too long.
      preferred: sizes of a batch that leaves at once. None: the largest only.
      delay: s that a request may be held back for a preferred size. inf: until there are enough.
      multi_step: tokens that may be drawn in one plan while nobody waits.
    """

    limits: Limits = dataclasses.field(default_factory=Limits)
    preferred: tuple[int, ...] | None = None
    delay: float = 0.0
    multi_step: int = 1

    def __post_init__(self) -> None:
        settle(self, multi_step=Limits.check(self.limits, self.multi_step))
        if self.preferred is not None:
            if isinstance(self.preferred, str | bytes) or not isinstance(self.preferred, Sequence):
                raise UserError(f"preferred batch sizes are {shown(self.preferred)}; give whole numbers, in a tuple")
            settle(self, preferred=tuple(integer("a preferred batch size", size, 1) for size in self.preferred))
        sizes = self.sizes
        if not sizes or min(sizes) < 1 or max(sizes) > self.limits.rows:
            raise UserError(
                f"preferred batch sizes are {list(sizes)}; they must lie between 1 and the largest batch, {self.limits.rows}"
            )
        settle(self, delay=number("the queue delay", self.delay, lambda seconds: seconds >= 0, "it must be at least 0, in s"))

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.limits.rows,) if self.preferred is None else self.preferred

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        step = PlanBuilder(self.limits, state, now)
        if step.rows:
            return carry_on(step, self.multi_step)
        if not step.queue:
            return step.done()
        batch = self._preferred(step.queue)
        # Whoever ran before and had to give its memory up has waited enough.
        leaves = step.queue.first_arrival + self.delay if step.queue.all_new else now
        if not batch and now < leaves:
            return step.done(wake=leaves)
        return begin(step, batch or step.queue)

    def _preferred(self, queue: Queue) -> tuple[Row, ...]:
        """The rows that need wait no longer, for they are a batch of a preferred size, or can't become one.

        The largest preferred size that the first requests make up exactly. If they make up none but go beyond the largest preferred
        one, the most that make a batch: waiting would not bring a preferred size about.
        """
        sizes = list(
            itertools.takewhile(lambda size: size <= self.limits.rows, itertools.accumulate(row.width for row in queue))
        )
        exact = [i for i, size in enumerate(sizes, start=1) if size in self.sizes]
        if exact:
            return tuple(itertools.islice(queue, exact[-1]))
        beyond = sizes[-1] > max(self.sizes) or len(sizes) < len(queue)
        return tuple(itertools.islice(queue, len(sizes))) if beyond else ()
