"""A policy on a virtual clock: the engine's own scheduling, with step times from a predictor, as long as a trace may be.

Until an outcome, a client or the policy's own timer is due nothing happens, so the clock jumps there. Nothing is kept but what waits or
runs, so memory is flat over any number of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from jaxserve.load.served import Books, Served
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult
from jaxserve.simulator.clients import Clients, OpenLoop
from jaxserve.simulator.clock import VirtualClock, Workers
from jaxserve.simulator.faults import Fault, Faults
from jaxserve.simulator.faulty import Crowd, FaultyPace, Leaving
from jaxserve.simulator.pace import Pace

_DRAWN = ((), (1,))  # by the number of draws; most are one


class SimulationResult(NamedTuple):
    """Totals.

    Attributes:
      state: the last one.
      seconds: when the last thing happened.
      busy: s that each worker ran plans, stalls included.
      plans: that had rows; steps: a plan of several counts as many.
      ran: tokens that were run, those of prompts that had to be run again included; of several steps, one for each token drawn.
      drawn: tokens that answers were given.
      preemptions: times an answer lost its memory.
      ends: answers by reason.
    """

    state: State
    seconds: float
    busy: tuple[float, ...]
    plans: int
    steps: int
    ran: int
    drawn: int
    preemptions: int
    ends: Mapping[str, int]


def one_token(plan: Plan) -> StepResult:
    """What a step comes to where only lengths matter: a token for each draw, and no end but the limit."""
    return StepResult(tuple([_DRAWN[draws] if draws < 2 else (1,) * draws for draws in plan.draws]))


def simulate(
    policy: Policy,
    state: State,
    requests: Iterable[Request] | Clients,
    seconds: Callable[[Plan], float] | Pace,
    *,
    run: Callable[[Plan], StepResult] = one_token,
    cancels: Iterable[tuple[float, int]] = (),
    faults: Iterable[Fault] = (),
    served: Callable[[Served], None] = lambda answer: None,
    watch: Observer | None = None,
) -> SimulationResult:
    """Everything from the first arrival to the last end.

    What is due at the same moment comes in this order: requests, cancellations, outcomes; then what follows from these.

    Args:
      requests: in the order of their arrival, which is when they are submitted; taken one at a time. Or clients that ask.
      seconds: what a plan takes; with several plans under way, one after the other on each worker. A `Predictor`, or a pace, which
        knows of the host's part as well.
      run: what a plan comes to.
      cancels: (time, id).
      faults: what goes wrong; where there is a burst, all ids are given out anew, see `Crowd`, and faults name the new ones.
      served: told of every answer when it is over, of those refused too.
      watch: sees all that the scheduler does.

    Raises:
      UserError: requests go back in time; a fault that can't be.
      RuntimeError: the policy leaves requests waiting for ever, or asks to be called again at once; a step that takes no time, or
        for ever.
    """
    wrong = Faults.of(faults, len(state.workers))
    clients: Clients = OpenLoop(requests) if isinstance(requests, Iterable) else requests
    if wrong.bursts:
        clients = Crowd(clients, wrong.bursts)
    pace = seconds if isinstance(seconds, Pace) else Pace(seconds)
    if wrong.slow or wrong.stalls:
        pace = FaultyPace(pace, wrong.slow, wrong.stalls)
    leaving = Leaving(cancels, wrong.leaves)

    def over(answer: Served) -> None:
        clients.over(answer)
        served(answer)

    books = Books(over)
    seers = [books, *([leaving] if leaving.counts else []), *([watch] if watch else [])]
    scheduler = Scheduler(policy, state, Observers(*seers) if len(seers) > 1 else books)
    workers = Workers(scheduler, run, pace)
    end = VirtualClock(scheduler, clients, leaving, workers, pace).run()
    if books.open:
        raise RuntimeError(f"{books.open} answers wait for ever: nothing runs, and the policy waits for nothing either")
    counts = (workers.plans, workers.steps, workers.ran, books.drawn, books.preemptions)
    return SimulationResult(scheduler.state, end, tuple(workers.busy), *counts, dict(books.ends))
