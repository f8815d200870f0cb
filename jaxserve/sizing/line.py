"""A candidate batch of a study, with all that was found of it: the model's step, its cap under the traffic, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from costmodel.sizing import CAPACITY, MODEL, UNDECIDED, Candidate, Verdict
from jaxserve.deployment.step_times import LEVEL, StepTimes, decode_plan
from jaxserve.load.slo import SLO
from jaxserve.sizing.measured import Measured
from jaxserve.sizing.traffic import Traffic
from jaxserve.sizing.trial import Configuration, Trial, trial


class Span(NamedTuple):
    """s of a step, and the ends of its interval."""

    middle: float
    quick: float
    slow: float


class Ends(NamedTuple):
    """The same run with every step at the quick, and at the slow end of its interval."""

    quick: Trial
    slow: Trial


class Line(NamedTuple):
    """A candidate batch.

    Attributes:
      trial: its cap under the traffic; None where there is nothing to run.
      step: of the full batch, calibrated; ends: of the trial. None where steps are analytical, and `ends` where there is no trial.
    """

    candidate: Candidate
    trial: Trial | None
    verdict: Verdict
    step: Span | None = None
    ends: Ends | None = None


def missed(ran: Trial, quick: Trial | None, witness: str) -> Verdict | None:
    """What a simulation says against a configuration; None where it says nothing.

    Args:
      quick: the run at the quick end of the interval of each step. What misses there as well is ruled out as far as one believes the
        calibration; what doesn't is left to the clock.
    """
    if ran.met:
        return None
    if quick is None:
        return Verdict(MODEL, f"simulated with {witness} steps: {ran.missed}")
    if not quick.met:
        return Verdict(MODEL, f"simulated with {witness} steps, at the quick end of their {LEVEL:.0%} interval: {quick.missed}")
    return Verdict(
        UNDECIDED,
        f"simulated with {witness} steps it misses ({ran.missed}), and not at the quick end of their {LEVEL:.0%} interval",
    )


def ends_of(
    configuration: Configuration, traffic: Traffic, steps: StepTimes, slo: SLO, advance: Callable[[int], None]
) -> Ends | None:
    """Run it at both ends of the interval of each step; None where steps have none."""
    if steps.quick is None or steps.slow is None:
        return None
    return Ends(*(trial(configuration, traffic, seconds, slo, advance) for seconds in (steps.quick, steps.slow)))


def span_of(steps: StepTimes, batch: int, context: int) -> Span | None:
    """Of a decode step in which so many rows hold the whole context; None where steps have no interval."""
    if steps.quick is None or steps.slow is None:
        return None
    plan = decode_plan(batch, context)
    return Span(steps.seconds(plan), steps.quick(plan), steps.slow(plan))


def judgement(
    verdict: Verdict,
    ran: Trial | None,
    ends: Ends | None,
    witness: str,
    measured: Sequence[Measured],
    traffic: Traffic,
    slo: SLO,
) -> Verdict:
    """With what simulation and measurement add. Capacity has the first word, and a clock the last."""
    if verdict.word == CAPACITY:
        return verdict
    if alike := [run for run in measured if not run.foreign(traffic.rate, traffic.demand)]:
        return alike[-1].verdict(slo)
    if verdict.word != UNDECIDED or ran is None:
        return verdict
    return missed(ran, ends.quick if ends else None, witness) or verdict
