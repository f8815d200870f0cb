"""Disaggregated serving: some workers run prompts, others decode, and the KV of a finished prompt is handed over between them."""

from __future__ import annotations

import dataclasses
import math
import sys

from jaxserve.kv.memory import Grant
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import HandOff, Plan
from jaxserve.scheduling.plan_builder import PlanBuilder
from jaxserve.scheduling.state import Row, State
from jaxserve.scheduling.transfer import Link, arrive, depart, next_arrival
from jaxserve.values import integer, number, settle, shown
from models.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class Disaggregated:
    """Prefill and decode apart, so that neither delays the other (Zhong et al. 2024, DistServe; NVIDIA Dynamo; llm-d).

    Any prefill worker takes the next request. A row whose prompt is done goes, in the order of admission, to the decode worker where
    it costs least: tokens to send there, plus tokens that the worker's rows hold. While none has room, it stays and holds its memory,
    so that a full decode side slows prefill down. A row that is preempted joins the queue and runs its prompt again.

    Attributes:
      link: how KV is sent.
      limits: of each worker.
      prefill: the first so many workers prefill, the others decode.
      budget: tokens of a prefill step at most.
      affinity: weight of tokens to send against tokens held; 0 looks at load alone.
      multi_step: tokens that a decode worker may draw in one plan while nobody waits.
    """

    link: Link
    limits: Limits = dataclasses.field(default_factory=Limits)
    prefill: int = 1
    budget: int = 512
    affinity: float = 1.0
    multi_step: int = 1

    def __post_init__(self) -> None:
        settle(
            self,
            multi_step=Limits.check(self.limits, self.multi_step),
            prefill=integer("prefill, workers,", self.prefill, 1),
            budget=integer("the budget, tokens of a prefill step,", self.budget, 1),
            affinity=number(
                "affinity", self.affinity, lambda weight: 0 <= weight < math.inf, "it must be at least 0, and finite"
            ),
        )
        if not isinstance(self.link, Link):
            raise UserError(f"link is {shown(self.link)}; give a Link")
        if self.limits.ahead:
            raise UserError(
                f"limits: ahead is {self.limits.ahead}; with several workers each runs one plan at a time, so leave it at 0"
            )

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        if len(state.workers) <= self.prefill:
            raise UserError(f"{len(state.workers)} workers leave none to decode beside {self.prefill} that prefill; add one")
        state, hand_offs = self._hand_over(arrive(state, now), now)
        for worker in self._turns(state):
            step = PlanBuilder(self.limits, state, now, worker)
            if worker < self.prefill:
                step.fill(self.budget)
            else:
                step.decode(spare=sys.maxsize)
                step.repeat(self.multi_step)
            if step.ids or step.preempted or step.desk.copies:
                break
        else:
            step = PlanBuilder(self.limits, state, now)
        return step.done(hand_offs=hand_offs, wake=next_arrival(state))

    def _turns(self, state: State) -> list[int]:
        """Workers that have nothing to do, the one that has been idle longest first."""
        idle = [i for i, worker in enumerate(state.workers) if not worker.flying]
        return sorted(idle, key=lambda i: state.workers[i].turn)

    def _hand_over(self, state: State, now: float) -> tuple[State, tuple[HandOff, ...]]:
        """Send off every row that can decode, until one finds no room: it goes first next time."""
        ready = []
        for source, worker in enumerate(state.workers[: self.prefill]):
            running = {id for plan in worker.flying for id in plan.ids}
            unwritten = {to for _, to in worker.copies}
            ready += [
                (row, source)
                for row in worker.rows.values()
                if worker.cached[row.id] >= row.goal and row.id not in running and unwritten.isdisjoint(row.table)
            ]
        sent = len(state.moving)
        for row, source in sorted(ready, key=lambda one: one[0].seniority):
            target, grant = self._route(state, row, source)
            if grant is None:
                break
            state = depart(state, row, source, target, grant, self.link, now)
        return state, tuple(move.what for move in state.moving[sent:])

    def _route(self, state: State, row: Row, source: int) -> tuple[int, Grant | None]:
        """The decode worker where a row costs least, and the memory that it grants; None where none has room."""
        old = state.workers[source]
        cached = old.cached[row.id]
        tokens = row._replace(output=row.output + old.tails.get(row.id, ())).tokens
        room = row.life if row.preemptions >= self.limits.preemptions else cached + 1
        offers = []
        for i in range(self.prefill, len(state.workers)):
            worker = state.workers[i]
            coming = [move for move in state.moving if move.what.target == i]
            if len(worker.rows) + len(coming) < self.limits.rows and (grant := worker.memory.admit(tokens, room)):
                held = sum(worker.cached.values()) + sum(move.cached for move in coming)
                offers.append((self.affinity * (cached - grant.cached) + held, len(worker.rows) + len(coming), i, grant))
        if not offers:
            return source, None
        _, _, target, best = min(offers, key=lambda offer: offer[:3])
        return target, best
