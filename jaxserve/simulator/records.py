"""A simulated run as its clients would have seen it: a `RequestRecord` for each answer, with the time of every token."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jaxserve.load.recorder import Recorder, RequestRecord
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult
from jaxserve.simulator.clients import Clients
from jaxserve.simulator.faults import Fault
from jaxserve.simulator.pace import Pace
from jaxserve.simulator.run import one_token, simulate


def simulated(
    policy: Policy,
    state: State,
    requests: Iterable[Request] | Clients,
    seconds: Callable[[Plan], float] | Pace,
    *,
    run: Callable[[Plan], StepResult] = one_token,
    cancels: Iterable[tuple[float, int]] = (),
    faults: Iterable[Fault] = (),
    watch: Observer | None = None,
) -> list[RequestRecord]:
    """As `jaxserve.simulate.simulate`, with what every answer came to, by id. Memory grows with every token.

    Raises:
      As `simulate`.
    """
    recorder = Recorder()
    watches = recorder if watch is None else Observers(recorder, watch)
    simulate(policy, state, requests, seconds, run=run, cancels=cancels, faults=faults, watch=watches)
    return recorder.records()
