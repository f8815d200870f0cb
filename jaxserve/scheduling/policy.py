"""The one contract of all policies, and which there are."""

from __future__ import annotations

from typing import Protocol

from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State


class Policy(Protocol):
    """A pure function from (state, now) to (plan, state).

    Whoever drives it, engine or simulator, does the same: `admission.submit` and `cancel` as clients come and go; ask for a plan; if
    it has rows, run it and give its outcome to `outcome.fold`; ask again until the plan is idle; then wait until an outcome or a
    client comes, or until `plan.wake`.
    """

    @property
    def limits(self) -> Limits:
        """What it admits; `admission.submit` wants to know."""

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        """The next step of some worker, at `now` s; an idle plan where none can be made."""
