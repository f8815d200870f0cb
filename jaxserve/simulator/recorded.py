"""A real run on the virtual clock: the same arrivals, the same step times and outcomes, from its step log.

The simulator then has to decide what the engine decided, at the same moments, and its tokens come at the same times. Where it would
decide otherwise, the plan's hash says so and the run is not simulated any further.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

from jaxserve.load.served import Served
from jaxserve.scheduling.names import memory_of, policy_of
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.simulator.pace import Pace
from jaxserve.steplog.replay import trusted
from models.errors import UserError


class Recording(Observer):
    """What a step log holds that a simulation needs. Make one with `Recording.read`.

    Attributes:
      policy, state: who scheduled, and what it began with.
      requests: (s at which it was submitted, request), those that were refused included.
      cancels: (s, id).
      decided: s at which each plan was made, in the order of their serial numbers.
      digests: of these plans.
      ended: s at which the outcome of a plan was known; outcomes: these.
    """

    policy: Policy
    state: State

    def __init__(self) -> None:
        self.requests: list[tuple[float, Request]] = []
        self.cancels: list[tuple[float, int]] = []
        self.decided: list[float] = []
        self.digests: list[str] = []
        self.ended: dict[int, float] = {}
        self.outcomes: dict[int, StepResult] = {}
        self.left = 0  # answers that are not over

    @classmethod
    def read(cls, path: Path, read: Callable[[int], None] = lambda size: None, own: str | None = None) -> Self:
        """All of a log. It is run again without a model, so that what it says is known to hang together.

        Args:
          read: called with the bytes of each line.
          own: MODULE:NAME of a policy that isn't ours and whose code may run.

        Raises:
          UserError: the log can't be read, doesn't repeat itself or was changed, or ends before the run did.
        """
        recording = cls()
        found = trusted(path, recording, read, own)
        if found.cut or recording.left:
            raise UserError(
                f"{path} ends before the run did, with {recording.left} answers under way; give the log of a whole run"
            )
        recording.policy = policy_of(found.header.policy, own)
        recording.state = State.of(*map(memory_of, found.header.memories))
        return recording

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        self.requests.append((now, request))
        self._see(state)

    def cancelled(self, state: State, id: int, now: float) -> None:
        self.cancels.append((now, id))
        self._see(state)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        self._see(after)
        if not plan.idle:
            self.decided.append(now)
            self.digests.append(plan.digest)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self.ended[plan.step], self.outcomes[plan.step] = now, outcome
        self._see(after)

    def _see(self, state: State) -> None:
        self.left = len(state.waiting) + sum(1 for _ in state.rows)

    def run(self, plan: Plan) -> StepResult:
        """What the plan came to. Raises UserError where it isn't the one that was made then."""
        self.check(plan)
        return self.outcomes.get(plan.step, StepResult(()))

    def check(self, plan: Plan) -> None:
        """Raises UserError for a plan that the log doesn't have."""
        if plan.step >= len(self.digests):
            raise UserError(f"the log has {len(self.digests)} plans, and this would be number {plan.step}: {plan.brief}")
        if plan.digest != self.digests[plan.step]:
            raise UserError(
                f"plan {plan.step} has digest {plan.digest} here and {self.digests[plan.step]} in the log: {plan.brief}; step times of "
                f"other plans say nothing of these"
            )

    @property
    def clients(self) -> LoggedClients:
        """Those of the run, once."""
        return LoggedClients(self.requests)

    @property
    def pace(self) -> RecordedPace:
        """That of the run."""
        return RecordedPace(self)


class LoggedClients:
    """Requests at the times at which they were submitted."""

    def __init__(self, requests: list[tuple[float, Request]]):
        self._coming = deque(requests)

    @property
    def due(self) -> float:
        return self._coming[0][0] if self._coming else math.inf

    def take(self) -> Request:
        return self._coming.popleft()[1]

    def over(self, answer: Served) -> None:
        """They come all the same."""


class RecordedPace(Pace):
    """Every plan is made when it was made, and known to be over when it was.

    A step time belongs to one plan: another in its place is refused, by its hash.
    """

    def __init__(self, recording: Recording):
        self._recording = recording

    def ready(self, now: float, step: int) -> float:
        """For ever where the log ends."""
        decided = self._recording.decided
        return max(now, decided[step]) if step < len(decided) else math.inf

    def again(self, now: float, step: int) -> float:
        return self.ready(now, step)

    def end(self, plan: Plan, begin: float) -> float:
        """Raises UserError for a plan whose outcome the log doesn't know, or that is another one."""
        self._recording.check(plan)
        if plan.step not in self._recording.ended:
            raise UserError(f"the log ends before the outcome of plan {plan.step}; give that of a whole run")
        return self._recording.ended[plan.step]
