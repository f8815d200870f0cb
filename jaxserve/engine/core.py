"""The loop of an engine: schedule, pack, step, unpack.

The policy may plan a step ahead while one runs; the device is only waited for where its tokens are needed. A step that was planned
ahead is handed over as soon as the tokens that it goes on from have arrived, before anything else is done with them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from jaxserve.engine.input_batch import InputBatch
from jaxserve.engine.model_runner import InFlightStep, ModelRunner
from jaxserve.engine.output_processor import OutputProcessor
from jaxserve.engine.prepare_inputs import InputPreparer
from jaxserve.engine.request_handle import Piece
from jaxserve.scheduling.plan import HandOff, Plan
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.scheduling.token_counts import TokenCounts


class EngineCore:
    """Turns until nothing is left to do.

    Args:
      scheduler, clients, packer, seats: shared with whoever takes requests in.
      executors: one a worker.
      stepped: is told of every step.
      predictor: what a plan should take, s.
      clock: s.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clients: OutputProcessor,
        packer: InputPreparer,
        seats: InputBatch,
        executors: Sequence[ModelRunner],
        *,
        stepped: Callable[[StepRecord], None],
        predictor: Callable[[Plan], float] | None,
        clock: Callable[[], float],
    ):
        self._scheduler, self._clients, self._packer, self._seats = scheduler, clients, packer, seats
        self._executors, self._stepped, self._predictor = executors, stepped, predictor
        self._clock = clock
        self._planned: deque[InFlightStep] = deque()  # not handed over yet
        self._flying: deque[InFlightStep] = deque()  # not answered yet
        self._ask = True  # whether the policy may have something new to say
        self.preempted = 0  # rows, so far, that had to give up their memory
        self._free = math.nan  # s, since when the device has had nothing to do for want of the host
        self._left = self._answered = clock()  # s, when `step` was left; when a step was answered last

    @property
    def idle(self) -> bool:
        """Nothing waits, runs, or is to be reported."""
        return self._scheduler.state.idle and not self._flying

    def news(self) -> None:
        """A client has come or gone."""
        self._ask = True

    def step(self) -> list[Piece]:
        """One turn; what it brought. Waits for the device at most once, for the oldest step under way."""
        self._free += self._clock() - self._left  # what the caller did meanwhile is not the engine's
        pieces = self._schedule()
        if self._flying:
            pieces += self._land(self._flying.popleft())
        if self._scheduler.state.idle:
            self._free = math.nan
        self._left = self._clock()
        return pieces

    def due(self, until: float) -> float | None:
        """When there will be something to do, at `until` at the latest; None if there is now, or nothing is left to wait for.

        Raises:
          RuntimeError: requests wait, and the policy would leave them waiting for ever.
        """
        if self._flying or self._ask or self.idle:
            return None
        due = min(self._scheduler.wake, until)
        if due == math.inf:
            raise RuntimeError(f"the policy makes no progress with {len(self._scheduler.state.waiting)} requests in its queue")
        return due

    def drop(self, id: int) -> None:
        """A row has ended."""
        self._clients.drop(id)
        self._seats.leave(id)

    def _schedule(self) -> list[Piece]:
        """Plan until the policy has nothing more to say, and hand over what can be; tells of requests that waited too long."""
        expired = []
        while (plan := self._scheduler.plan(self._clock())) is not None:
            for id in plan.expired:
                expired += self._clients.expire(id)
            for id in plan.preempted:
                self._seats.leave(id)
            self.preempted += len(plan.preempted)
            for move in plan.hand_offs:
                self._executors[move.target].receive(self._executors[move.source], self._units(move))
            if plan.ids:
                self._seat(plan)
                calls = self._packer.pack(plan, self._clients.drafts, self._clients.special)
                flight = InFlightStep(plan, calls)
                self._planned.append(flight)
                self._hand_over()
                self._note(flight)
            elif plan.copies:
                self._executors[plan.worker].copy(plan.copies)
        self._ask = False
        return expired

    def _note(self, flight: InFlightStep) -> None:
        """What its record will say of the plan: found out only now that the device has something to do meanwhile."""
        flight.kinds, flight.digest = TokenCounts.of(flight.plan, self._scheduler.state), flight.plan.digest
        flight.predicted = self._predictor(flight.plan) if self._predictor else None

    def _seat(self, plan: Plan) -> None:
        """Rows that come for the first time, or again, get a seat; tables that have changed are noted."""
        for row, first in plan.moved:
            id = plan.ids[row]
            if id not in self._seats:
                one = self._clients.samples[id]
                self._seats.take(id, one.handle.known(one.index), one.handle.samples[one.index], one.handle.stops)
            self._seats.show(id, plan.tables[row], first)

    def _hand_over(self) -> None:
        """Dispatch planned steps, but for those whose worker still runs the step before: they go on from its tokens."""
        busy = {flight.plan.worker for flight in self._flying}
        while self._planned and self._planned[0].plan.worker not in busy:
            flight = self._planned.popleft()
            executor = self._executors[flight.plan.worker]
            executor.fill(flight)
            now = self._clock()
            flight.dispatched, flight.host = now, max(now - self._free, 0.0) if self._free == self._free else 0.0
            self._free = math.nan
            executor.dispatch(flight)
            self._flying.append(flight)
            busy.add(flight.plan.worker)

    def _land(self, flight: InFlightStep) -> list[Piece]:
        """Wait for a step, hand over the next one, and then see to what it brought."""
        plan, ids = flight.plan, flight.plan.ids
        executor = self._executors[plan.worker]
        executor.wait(flight)
        now = self._clock()
        since, self._answered = max(flight.dispatched, self._answered), now
        self._free = math.nan if self._flying else now
        executor.learn(flight)
        self._hand_over()
        drawn = executor.drawn(flight, lambda row, *found: self._clients.score(ids[row], *found))
        pages = self._scheduler.state.workers[plan.worker].memory.in_use
        outcome, pieces = self._clients.unpack(flight, drawn, now)
        if plan.verifies:
            for id, start, count, draws, tokens in zip(ids, plan.starts, plan.counts, plan.draws, outcome.tokens, strict=True):
                if draws >= count:  # not at the end of a prompt, where what was drawn is known already
                    self._seats.tell(id, start + 1, tokens)
        for end in self._scheduler.update(plan, outcome, now):
            self.drop(end.id)
        self._ask = True
        self._stepped(self._record(flight, sum(len(piece.tokens) for piece in pieces), pages, now - since, now))
        return pieces

    def _units(self, move: HandOff) -> list[tuple[int, int]]:
        """(from, to) pages or slots of a transfer."""
        unit = self._scheduler.state.workers[move.source].memory.page
        source, target = move.pages
        return list(zip(source, target, strict=False))[move.start // unit : -(-move.stop // unit)]

    @staticmethod
    def _record(flight: InFlightStep, drawn: int, pages: int, measured: float, now: float) -> StepRecord:
        plan = flight.plan
        return StepRecord(
            step=plan.step,
            worker=plan.worker,
            digest=flight.digest,
            programs=tuple(call.bucket.name for call in flight.calls),
            rows=len(plan.ids),
            padded=sum(call.padded for call in flight.calls),
            **flight.kinds._asdict(),
            drawn=drawn,
            pages=pages,
            predicted=flight.predicted,
            measured=measured,
            host=flight.host,
            at=now,
        )
