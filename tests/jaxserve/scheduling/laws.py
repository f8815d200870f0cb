"""The laws that every policy obeys, watched from outside.

The watcher keeps its own books (who waits, who runs, how far each is) from what it is told, and compares plans with them; answers are
compared with the toy model run alone. So nothing here is right because the scheduler says so.
"""

from __future__ import annotations

import math

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.check import check
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult
from models.errors import UserError
from tests.jaxserve.scheduling.clock import Played, play
from tests.jaxserve.scheduling.toy import Device, Toy, mixed
from tests.jaxserve.scheduling.workloads import Workload


class Laws(Observer):
    """Books of one run."""

    def __init__(self, policy: Policy, device: Device, limits: Limits, *, budget: float = math.inf):
        self.policy, self.device, self.limits, self.budget = policy, device, limits, budget
        self.waiting: dict[int, Request] = {}  # by id, never admitted
        self.again: dict[int, int] = {}  # rows that ran and wait again: the serial number of their last admission
        self.running: dict[int, int] = {}  # the same of rows that have memory
        self.at: dict[int, int] = {}  # tokens that each of them has run or found
        self.over: set[int] = set()
        self.preemptions: dict[int, int] = {}
        self.admissions = 0

    def _request(self, id: int) -> Request:
        return self.device.requests[id]

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        check(state)
        capacity = min(worker.memory.capacity for worker in state.workers)
        too_long = len(request.prompt) + request.limit - 1 > min(capacity, self.limits.context or capacity)
        rule = self.limits.rule(request.priority)
        waits = [id for id in (*self.waiting, *self.again) if self._request(id).priority == request.priority]
        full = rule.size is not None and len(waits) >= rule.size
        assert (refused is not None) == (too_long or request.samples > self.limits.rows or full), refused
        if refused is None:
            self.device.accept(request)
            self.waiting[request.id] = request

    def cancelled(self, state: State, id: int, now: float) -> None:
        check(state)
        if id in self.waiting or id in self.again or id in self.running:
            self._leave(id)

    def _leave(self, id: int) -> None:
        self.over.add(id)
        for books in (self.waiting, self.again, self.running, self.at):
            books.pop(id, None)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        check(after)
        assert self.policy(before, now) == (plan, after), "the same state and time gave another plan"
        if plan.idle:
            flying = any(worker.flying for worker in after.workers)
            assert flying or after.moving or not (after.waiting or any(after.rows)) or now < plan.wake < math.inf, "no progress"
            assert after.steps == before.steps
            return
        assert after.steps == before.steps + 1 == plan.step + 1
        for move in plan.hand_offs:
            self.device.move(move)
        for id in plan.expired:
            request = self.waiting[id]
            rule = self.limits.rule(request.priority)
            late = rule.late == "reject" and now >= request.arrival + rule.timeout
            assert now >= request.deadline or late, f"request {id} was dropped before its time"
            self._leave(id)
        for id in self.waiting:
            assert now < self._request(id).deadline, f"request {id} waits beyond its deadline"
        self._preempted(plan)
        self._admitted(plan, now)
        self._rows(plan)

    def _preempted(self, plan: Plan) -> None:
        """The last admitted of the lowest priority first, unless it has lost its memory too often already."""
        for id in plan.preempted:
            self.preemptions[id] = self.preemptions.get(id, 0) + 1
            assert self.preemptions[id] <= self.limits.preemptions, f"row {id} is preempted without end"
            self.again[id] = self.running.pop(id)
            del self.at[id]
        assert not (plan.preempted and plan.admitted), "admitted in a step that preempted"

    def turn(self, id: int, now: float) -> tuple:
        """By priority; within it those that ran before, in their old order; then in the order of arrival; the late last."""
        request = self._request(id)
        if id in self.again:
            return request.priority, 0, self.again[id]
        rule = self.limits.rule(request.priority)
        late = now >= request.arrival + rule.timeout
        return request.priority, 2 if late else 1, 0 if late else id

    def _admitted(self, plan: Plan, now: float) -> None:
        for id in plan.admitted:
            first = min(self.turn(other, now) for other in (*self.waiting, *self.again))
            assert self.turn(id, now) == first, f"row {id} overtakes another, whose turn is {first}"
            self.waiting.pop(id, None)
            self.again.pop(id, None)
            self.running[id] = self.admissions
            self.admissions += 1
            at = plan.starts[plan.ids.index(id)]
            assert at < len(self.device.tokens[id]), "a row has nothing to compute, so nothing to draw from"
            assert self._request(id).reuse or at == 0, f"row {id} is to run its whole prompt"
            self.at[id] = at

    def _rows(self, plan: Plan) -> None:
        assert len(set(plan.ids)) == len(plan.ids)
        assert plan.tokens <= self.budget, f"{plan.tokens} tokens in a step of at most {self.budget}"
        assert len(plan.ids) <= plan.slots <= self.limits.rows
        for row in plan.rows:
            assert row.id in self.running and row.id not in self.over, f"row {row.id} has no business in this plan"
            assert self.at[row.id] == row.start, f"row {row.id} is at {self.at[row.id]}, but the plan starts at {row.start}"
            assert row.count >= 1 and 0 <= row.draws <= max(row.count, plan.steps)
            self.at[row.id] = row.start + (plan.steps if plan.steps > 1 else 1 if row.draws > 1 else row.count)

    def _remembered(self, state: State) -> None:
        """Where memory looks at tokens, the state knows each answer up to the last outcome."""
        waiting = [(row, (), not any(worker.flying for worker in state.workers)) for row in state.waiting]
        moving = [(move.row, (), True) for move in state.moving]
        running = [(row, w.tails.get(row.id, ()), not w.flying) for w in state.workers for row in w.rows.values()]
        for row, tail, exact in (*waiting, *moving, *running):
            known, answer = [*row.output, *tail], self.device.answer(row.id)
            assert known == answer[: len(known)] and (not exact or len(known) == len(answer)), (
                f"row {row.id}: {known}, not {answer}"
            )

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        check(after)
        for row, tokens in zip(plan.rows, outcome.tokens, strict=True):
            if row.id in self.at and row.draws > 1 and plan.steps == 1:
                self.at[row.id] += len(tokens) - 1
        for id in plan.forking:
            if id not in self.over:
                for child in range(id + 1, id + self._request(id).samples):
                    waits = any(row.id == child for row in after.waiting)
                    (self.again if waits else self.running)[child] = self.admissions
                    self.admissions += 1
                    if not waits:
                        self.at[child] = len(self._request(id).prompt) - 1
        if after.workers[0].memory.remembers:
            self._remembered(after)
        for end in ends:
            assert self.device.ended[end.id] == end.reason and end.id not in self.over
            self._leave(end.id)


def obeys(
    policy: Policy, load: Workload, *, memories: int = 1, budget: float = math.inf, log: Observer | None = None
) -> Played:
    """Play the workload and check every law, to its end; what came out. `log` sees the run, too."""
    state = State.of(*[load.memory() for _ in range(memories)])
    model = Toy(load.vocabulary)
    device = Device(model, [worker.memory.page for worker in state.workers], load.drafts)
    watch = Laws(policy, device, load.limits, budget=budget)

    def seconds(plan: Plan) -> float:
        return 0.25 + 0.01 * plan.tokens * plan.steps + 0.5 * (mixed(plan.step) % 3)

    played = play(
        policy, state, load.requests, seconds, device.run, cancels=load.cancels, watch=Observers(watch, log or Observer())
    )
    assert played.state.idle
    for worker in played.state.workers:
        assert worker.memory.in_use == 0, "memory is lent to nobody"
        if isinstance(worker.memory, Paged):
            idle = worker.memory.prefix.idle if worker.memory.prefix else 0
            assert worker.memory.pages.free + idle == worker.memory.pages.total
    assert not (watch.waiting or watch.again or watch.running), "some were forgotten"
    for id, (_, reason) in played.ended.items():
        request = device.requests[id]
        expected = model.answer(request, id - request.id)
        assert device.answer(id) == expected, f"row {id} answers {device.answer(id)}, alone {expected}"
        assert reason == ("stop" if expected[-1] == 0 else "length")
    return played
