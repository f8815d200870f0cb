"""The one contract of all policies, and which there are."""

from __future__ import annotations

from typing import Protocol

from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State


class Policy(Protocol):
    """A pure function from (state, now) to (plan, state).

    Whoever drives it, engine, simulator or replay, does so through a `scheduler.Scheduler`, and all do the same: `submit` and
    `cancel` as clients come and go; ask for a plan; if it has rows, run it and give its result to `update`; ask again until there is
    none; then wait until an outcome or a client comes, or until `wake`.
    """

    @property
    def limits(self) -> Limits:
        """What it admits; `admission.submit` wants to know."""

    @property
    def multi_step(self) -> int:
        """Tokens that a row may draw in one plan at most, drafts not counted."""

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        """The next step of some worker, at `now` s; an idle plan where none can be made."""
