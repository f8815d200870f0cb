"""Whoever wants to see what is scheduled: a log, a test, statistics. It sees everything and does nothing about it."""

from __future__ import annotations

from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.step_result import End, StepResult
from models.errors import UserError


class Observer:
    """Sees nothing; override what is wanted. Times are s on the clock of the scheduler, states those before and after."""

    def started(self, policy: Policy, state: State) -> None:
        """A scheduler begins; comes once, before all else."""

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        """A request has come in, or was refused; `state` is the one after it."""

    def cancelled(self, state: State, id: int, now: float) -> None:
        """A row was taken out by its client; `state` is the one after it."""

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        """The policy was asked; the plan may be idle."""

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        """A plan was run."""

    def stepped(self, record: StepRecord) -> None:
        """What the step took, from an engine that ran it on a device; comes after `updated`."""


class Observers(Observer):
    """Several, in turn."""

    def __init__(self, *watches: Observer):
        self.watches = watches

    def started(self, policy: Policy, state: State) -> None:
        for watch in self.watches:
            watch.started(policy, state)

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        for watch in self.watches:
            watch.submitted(state, request, refused, now)

    def cancelled(self, state: State, id: int, now: float) -> None:
        for watch in self.watches:
            watch.cancelled(state, id, now)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        for watch in self.watches:
            watch.planned(before, plan, after, now)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        for watch in self.watches:
            watch.updated(before, plan, outcome, after, ends, now)

    def stepped(self, record: StepRecord) -> None:
        for watch in self.watches:
            watch.stepped(record)
