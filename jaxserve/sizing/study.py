"""The study of one deployment: candidate batches by capacity and model, each as a cap by simulation, and what is left to measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from costmodel.capacity import Fit, Pool
from costmodel.commands.choices import ModelChoice
from costmodel.sizing import (
    CAPACITY,
    MEASURED,
    MODEL,
    UNDECIDED,
    Candidate,
    Placement,
    Verdict,
    batches,
    candidate,
    check_goal,
)
from jaxserve.load.record import Record
from jaxserve.load.saturation import Saturation, saturate
from jaxserve.load.slo import SLO
from jaxserve.predict import Analytical
from jaxserve.sizing.asked import Asked
from jaxserve.sizing.measured import Measured
from jaxserve.sizing.traffic import Traffic, judged
from jaxserve.sizing.trial import Configuration, Trial, trial
from models.errors import UserError

PROBES, TOLERANCE = 8, 0.05  # of the search for the admission limit
LONGEST = 4  # runs of a search are at most so many times as long as others

Bar = Callable[[str, int], Callable[[int], None]]


class Line(NamedTuple):
    """A candidate batch. `trial` is its cap under the traffic; None where there is nothing to run."""

    candidate: Candidate
    trial: Trial | None
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Study:
    """What was found.

    Attributes:
      fit: what weights, workspace and pool take of a chip.
      pool: of KV, with block metadata and headroom.
      context: tokens of a full sequence.
      lines: by batch.
      limit: the highest rate that the largest cap which may hold the SLO holds, by simulation, and the admission limit; None where no cap
        may, or where so few requests say nothing of it.
      limited: that cap.
      clients: closed-loop clients of the measurement plan.
    """

    asked: Asked
    chosen: ModelChoice
    placement: Placement
    fit: Fit
    pool: Pool
    context: int
    traffic: Traffic
    lines: tuple[Line, ...]
    limit: Saturation | None
    limited: int | None
    clients: tuple[int, ...]
    measured: tuple[Measured, ...]

    @property
    def open(self) -> tuple[int, ...]:
        """Caps that are still to be measured, or have been."""
        return tuple(line.candidate.batch for line in self.lines if line.verdict.word in (UNDECIDED, MEASURED))


def study(asked: Asked, clients: Sequence[int] | None, measured: Sequence[Measured], bar: Bar) -> Study:
    """Work it out and simulate.

    Args:
      clients: closed-loop clients to plan for; None for what suits the pool.
      measured: runs of the load harness.

    Raises:
      UserError: what no deployment could hold or the options do not say; see `Asked` and `costmodel.sizing.check_goal`.
    """
    for name, given in (("--chip", asked.chip), ("--policy", asked.policy), ("--tensor-parallel", asked.tensor_parallel or ())):
        if len(given) > 1:
            raise UserError(f"{name} names {len(given)} and a study is of one deployment; give one, or add --search")
    chosen = asked.choose()
    traffic = asked.traffic(chosen)
    placement = asked.placement(chosen, asked.chips()[0], (asked.tensor_parallel or (1,))[0])
    context = asked.context or traffic.longest
    found = asked.fit(placement, max(asked.batch or (asked.budget,)))
    pool = asked.pool(placement, found)
    bare = dataclasses.replace(pool, entry=0.0, headroom=0.0)  # in which candidates are counted
    if found.fits:  # else there is no step to wait for
        check_goal(placement, asked.goal, traffic.demand)
    sequences = pool.sequences(context) if found.fits else 0
    caps = tuple(sorted(set(asked.batch or batches(bare.sequences(context)))))
    seconds = predictor(placement)
    advance = bar("simulating, requests", len(caps) * len(traffic.requests) if sequences else 0)
    busy, lines = placement.busy(traffic.demand), []
    for cap in caps:
        seen = candidate(placement, bare, cap, context, traffic.demand)
        verdict = Verdict(CAPACITY, found.verdict) if not found.fits else seen.verdict(bare, asked.goal, traffic.demand, busy)
        if verdict.word != CAPACITY and cap > sequences:
            verdict = Verdict(CAPACITY, f"{sequences} full sequences are left after block metadata and headroom")
        ran = trial(asked.configuration(cap, pool), traffic, seconds, asked.slo, advance) if sequences else None
        lines.append(Line(seen, ran, _judged(verdict, ran, [run for run in measured if run.cap == cap], traffic, asked.slo)))
    may = [line.candidate.batch for line in lines if line.verdict.word in (UNDECIDED, MEASURED)]
    limit = None
    if may:
        stays = next(line.trial.residence for line in lines if line.trial and line.candidate.batch == max(may))
        limit = _limit(asked.configuration(max(may), pool), traffic, stays, seconds, asked.slo, bar)
    return Study(
        asked=asked,
        chosen=chosen,
        placement=placement,
        fit=found,
        pool=pool,
        context=context,
        traffic=traffic,
        lines=tuple(lines),
        limit=limit,
        limited=max(may, default=None),
        clients=_clients(clients, sequences, context),
        measured=tuple(measured),
    )


def predictor(placement: Placement) -> Analytical:
    """What its steps take in a simulation: their full analytical time, without padding."""
    return Analytical(
        placement.model, placement.chip, dtype=placement.dtype, kv_dtype=placement.kv_dtype, tensor_parallel=placement.degree
    )


def _judged(verdict: Verdict, ran: Trial | None, measured: Sequence[Measured], traffic: Traffic, slo: SLO) -> Verdict:
    """With what simulation and measurement add. Capacity has the first word, and a clock the last."""
    if verdict.word == CAPACITY:
        return verdict
    if alike := [run for run in measured if not run.foreign(traffic.rate, traffic.demand)]:
        return alike[-1].verdict(slo)
    if verdict.word == UNDECIDED and ran is not None and not ran.met:
        return Verdict(MODEL, f"simulated with analytical steps: {ran.missed}")
    return verdict


def _limit(
    configuration: Configuration, traffic: Traffic, stays: float, seconds: Analytical, slo: SLO, bar: Bar
) -> Saturation | None:
    """The highest rate that holds, by simulation, as far as runs of so many requests can say.

    A run must go on after the system has filled up. One that doesn't is made longer; rates at which even the longest would end before are
    not tried.

    Args:
      stays: mean s of a request in the system, at the rate that was asked for.
    """
    highest = len(traffic.requests[: judged(len(traffic.requests)).start]) * LONGEST / stays
    if highest < traffic.rate:
        return None
    advance = bar(f"looking for the admission limit of cap {configuration.cap}, rates", PROBES)

    def measure(rate: float) -> Sequence[Record]:
        for times in (1, LONGEST):
            ran = trial(configuration, traffic.at(rate).longer(times), seconds, slo)
            if not ran.hasty:
                break
        advance(1)
        return ran.records[judged(len(ran.records))]

    return saturate(measure, slo, low=traffic.rate, high=highest, probes=PROBES, tolerance=TOLERANCE)


def _clients(given: Sequence[int] | None, sequences: int, context: int) -> tuple[int, ...]:
    """Closed-loop clients: quarters of the largest power of two of full sequences that fit, 32, 64, 96, 128 for 240.

    Raises:
      UserError: more of them than the pool can ever hold.
    """
    if given and sequences and max(given) > sequences:
        raise UserError(
            f"--clients {max(given)}: the pool holds at most {sequences} full sequences of {context} tokens, so the rest would only wait; "
            f"give at most {sequences}, a larger --kv-pool or a shorter --context"
        )
    if given or not sequences:
        return tuple(sorted(set(given or ())))
    largest = 1 << sequences.bit_length() - 1
    return tuple(sorted({max(largest * quarter // 4, 1) for quarter in (1, 2, 3, 4)}))
