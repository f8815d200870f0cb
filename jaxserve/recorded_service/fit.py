"""The parameters of a service's steps, from when its first requests got their tokens.

Who shared a step with whom is not recorded, but the scheduler is known: a simulation says it, given how long steps take. So two things
take turns until neither changes: the simulation makes the steps, and the parameters are fitted to what lay between recorded moments,
each of them a sum over steps. Of what was tried the best is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from jaxserve.recorded_service.deployed import Deployed
from jaxserve.recorded_service.play import play
from jaxserve.recorded_service.recorded import Served
from jaxserve.recorded_service.step_time import Counted, Parameters, StepTime, Work
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult
from models.errors import UserError

START = Parameters(bandwidth=0.85, peak=0.8)
ROUNDS = 12  # of simulation and fit, at most
STEADY = 1e-3  # relative change of all parameters below which it has settled
ENOUGH = 20  # requests
_UNKNOWN = 0.5  # standard error of a logarithm from which on a parameter is not known
_SAME = 1e-9  # singular values of the Jacobian, of the largest, that count as none
_EXACT = 1e-4  # residual that even simulated times are taken to have, of the rounding of clocks
_OUTLIER = 0.1  # of a logarithm: errors beyond it count by their size, not by its square (Huber 1964)


class Fitted(NamedTuple):
    """What was fitted.

    Attributes:
      errors: standard error of the logarithm of each parameter, from the Gauss-Newton Hessian.
      axes: the directions in which they err independently, one standard error long: logarithms.
      residual: root mean square of the logarithm of the error over the moments that were fitted, those cut off that are beyond 10 %.
      moments: of them; rounds: of simulation and fit.
    """

    parameters: Parameters
    errors: Parameters
    residual: float
    moments: int
    rounds: int
    axes: tuple[Parameters, ...] = ()


class Seen(Observer):
    """The steps of a simulation on one worker, and which of them lie between the moments of each request.

    Attributes:
      work: of each step.
      admitted: steps that were known when a request was first given memory; elapsed: s of the next one that were over by then.
      first, last: steps that were known when its first and its last token were.
    """

    def __init__(self) -> None:
        self.work: list[Work] = []
        self.admitted: dict[int, int] = {}
        self.elapsed: dict[int, float] = {}
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self._known, self._at = 0, 0.0

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        runs = before.workers[0].flying  # since the last outcome, or else since this moment
        for id in plan.admitted:
            if id not in self.admitted:
                self.admitted[id], self.elapsed[id] = self._known, now - self._at if runs else 0.0

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self._known, self._at = self._known + 1, now
        for id, tokens in zip(plan.ids, outcome.tokens, strict=True):
            if tokens:
                self.first.setdefault(id, self._known)
                self.last[id] = self._known


def fit(
    service: Deployed,
    counted: Counted,
    requests: Sequence[Served],
    first: int,
    *,
    done: Callable[[], None] = lambda: None,
) -> Fitted:
    """Fit to the times of the first requests.

    Args:
      requests: all of them, for later ones share steps with the first; of the later ones no time but `queued` is looked at.
      first: so many are fitted to.
      done: called after each round.

    Raises:
      UserError: too few requests; parameters that these times say nothing of.
    """
    if not ENOUGH <= first <= len(requests):
        raise UserError(f"--first is {first}; fitting takes {ENOUGH} requests to {len(requests)}, which is all there are")
    tried, best = START, Fitted(START, START, math.inf, 0, 0)
    for round in range(1, ROUNDS + 1):
        seen = Seen()
        play(service, requests, StepTime(counted, tried, seen.work.append), watch=seen)
        found = _solve(seen, requests[:first], tried)._replace(rounds=round)
        best = min(best, found, key=lambda each: each.residual)
        done()
        if all(abs(math.log(a / b)) < STEADY for a, b in zip(found.parameters, tried, strict=True)):
            break
        # Half the way: a whole step can leave two sets of steps to take turns for ever.
        tried = Parameters(*(math.sqrt(a * b) for a, b in zip(found.parameters, tried, strict=True)))
    unknown = [name for name in Parameters._fields if getattr(best.errors, name) > _UNKNOWN]
    if unknown:
        raise UserError(
            f"the times of {first} requests say nothing of {', '.join(unknown)}: give more requests, or a run with other batches"
        )
    return best


def _solve(seen: Seen, requests: Sequence[Served], start: Parameters) -> Fitted:
    """The parameters that come nearest, given who ran in which step."""
    begin, end, over, took = [], [], [], []
    for i, request in enumerate(requests):
        begin.append(seen.admitted[i])
        over.append(seen.elapsed[i])
        end.append(seen.first[i])
        took.append(request.first - request.scheduled)
        if request.output > 1:
            begin.append(seen.first[i])
            over.append(0.0)
            end.append(seen.last[i])
            took.append(request.last - request.first)
    work = Work(*(np.array(column, np.float64) for column in zip(*seen.work, strict=True)))
    wanted = np.log(np.maximum(took, 1e-6))

    def misses(logs: np.ndarray) -> np.ndarray:
        ends = np.concatenate(([0.0], np.cumsum(Parameters(*np.exp(logs)).seconds(work))))
        return np.log(np.maximum(ends[end] - ends[begin] - over, 1e-6)) - wanted

    found = least_squares(misses, np.log(start), loss="huber", f_scale=_OUTLIER)
    residual = float(np.sqrt(np.mean(np.minimum(np.abs(misses(found.x)), _OUTLIER) ** 2)))
    _, singular, right = np.linalg.svd(found.jac, full_matrices=False)
    spread = right.T / np.maximum(singular, _SAME * singular[0])  # of what cannot be told apart it becomes very wide
    spread *= max(residual, _EXACT)
    errors, axes = np.sqrt((spread**2).sum(1)), tuple([Parameters(*axis) for axis in spread.T.tolist()])
    return Fitted(Parameters(*np.exp(found.x).tolist()), Parameters(*errors.tolist()), residual, len(took), 0, axes)
