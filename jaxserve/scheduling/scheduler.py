"""The one driver of policies: engine, simulator and replay all ask it, so that the same arrivals and outcomes make the same plans."""

from __future__ import annotations

import math

from jaxserve.scheduling.admission import cancel, check, submit
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult, update
from models.errors import UserError


class Scheduler:
    """A policy and the state that it is in. All times are s on the caller's clock, which may be a virtual one.

    Attributes:
      state: the current one, a value.
      wake: when the policy wants to be asked again although nothing happens before; inf if there is nothing to wait for.
    """

    def __init__(self, policy: Policy, state: State, watch: Observer | None = None):
        self.policy, self.state, self.wake = policy, state, math.inf
        self._watch = watch or Observer()
        self._watch.started(policy, state)

    def check(self, request: Request) -> None:
        """Raises UserError for a request that could never be served; see `admission.check`."""
        check(self.state, request, self.policy.limits)

    def submit(self, request: Request, now: float) -> None:
        """Take a request in.

        Raises:
          UserError, QueueFull: see `admission.submit`; nothing has changed then.
        """
        try:
            state = submit(self.state, request, self.policy.limits)
        except UserError as error:
            self._watch.submitted(self.state, request, error, now)
            raise
        self._watch.submitted(state, request, None, now)  # first: where it can't be written down, it has not come in
        self.state = state

    def cancel(self, id: int, now: float) -> None:
        """Take a row out, wherever it is; nothing happens if it has ended."""
        self.state = cancel(self.state, id)
        self._watch.cancelled(self.state, id, now)

    def plan(self, now: float) -> Plan | None:
        """The next step of some worker; None where there is nothing to do or report until an outcome, a client or `wake`."""
        before = self.state
        plan, state = self.policy(before, now)
        self._watch.planned(before, plan, state, now)  # first: a plan that can't be written down is not made
        self.state, self.wake = state, plan.wake
        return None if plan.idle else plan

    def update(self, plan: Plan, outcome: StepResult, now: float) -> tuple[End, ...]:
        """Take in what a plan came to: the rows that it ended. Plans without rows have no outcome."""
        before = self.state
        self.state, ends = update(before, plan, outcome)
        self._watch.updated(before, plan, outcome, self.state, ends, now)
        return ends
