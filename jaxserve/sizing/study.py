"""The study of one deployment: candidate batches by capacity and model, each as a cap by simulation, and what is left to measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from costmodel.capacity import Fit, Pool
from costmodel.cli.choices import ModelChoice
from costmodel.sizing import (
    CAPACITY,
    MEASURED,
    UNDECIDED,
    Placement,
    Verdict,
    batches,
    candidate,
    check_goal,
)
from jaxserve.calibration.machine import Machine
from jaxserve.deployment.step_times import Seconds, StepTimes, machine_caps, machine_steps, step_times
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.saturation import Saturation, saturate
from jaxserve.load.slo import SLO
from jaxserve.sizing.line import Line, ends_of, judgement, span_of
from jaxserve.sizing.measured import Measured
from jaxserve.sizing.spec import SizingSpec
from jaxserve.sizing.traffic import Traffic, judged
from jaxserve.sizing.trial import Configuration, trial
from models.errors import UserError

PROBES, TOLERANCE = 8, 0.05  # of the search for the admission limit
LONGEST = 4  # runs of a search are at most so many times as long as others

Bar = Callable[[str, int], Callable[[int], None]]


@dataclasses.dataclass(frozen=True)
class Study:
    """What was found.

    Attributes:
      fit: what weights, workspace and pool take of a chip.
      pool: of KV, with block metadata and headroom.
      context: tokens of a full sequence.
      steps: what steps of the simulations take.
      lines: by batch.
      limit: the highest rate that the largest cap which may hold the SLO holds, by simulation, and the admission limit; None where no cap
        may, or where so few requests say nothing of it.
      limited: that cap.
      clients: closed-loop clients of the measurement plan.
    """

    asked: SizingSpec
    chosen: ModelChoice
    placement: Placement
    fit: Fit
    pool: Pool
    context: int
    traffic: Traffic
    steps: StepTimes
    lines: tuple[Line, ...]
    limit: Saturation | None
    limited: int | None
    clients: tuple[int, ...]
    measured: tuple[Measured, ...]

    @property
    def open(self) -> tuple[int, ...]:
        """Caps that are still to be measured, or have been."""
        return tuple(line.candidate.batch for line in self.lines if line.verdict.word in (UNDECIDED, MEASURED))


def study(asked: SizingSpec, clients: Sequence[int] | None, measured: Sequence[Measured], bar: Bar) -> Study:
    """Work it out and simulate.

    Args:
      clients: closed-loop clients to plan for; None for what suits the pool.
      measured: runs of the load harness.

    Raises:
      UserError: what no deployment could hold or the options do not say; see `SizingSpec` and `costmodel.sizing.check_goal`.
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
    planned = _clients(clients, sequences, context)  # what is wrong with them is said before the simulations
    machine = None if asked.machine is None else Machine.read(asked.machine)
    caps = tuple(sorted(set(asked.batch or (machine_caps(machine) if machine else batches(bare.sequences(context))))))
    if machine is None or asked.machine is None:
        steps = step_times(placement, asked.step_times, asked.silicon)
    else:
        steps = machine_steps(placement, asked.machine, machine, page=asked.page, caps=caps, context=context)
    sides = 3 if steps.quick else 1
    advance = bar("simulating, requests", sides * len(caps) * len(traffic.requests) if sequences else 0)
    busy, lines = placement.busy(traffic.demand), []
    for cap in caps:
        seen = candidate(placement, bare, cap, context, traffic.demand)
        verdict = Verdict(CAPACITY, found.verdict) if not found.fits else seen.verdict(bare, asked.goal, traffic.demand, busy)
        if verdict.word != CAPACITY and cap > sequences:
            verdict = Verdict(CAPACITY, f"{sequences} full sequences are left after block metadata and headroom")
        ran = (
            trial(asked.configuration(cap, pool, steps.piece), traffic, steps.seconds, asked.slo, advance)
            if sequences
            else None
        )
        ends = ends_of(asked.configuration(cap, pool, steps.piece), traffic, steps, asked.slo, advance) if sequences else None
        mine = [run for run in measured if run.cap == cap and not run.elsewhere(placement.model.name, placement.chip.name)]
        said = judgement(verdict, ran, ends, steps.witness, mine, traffic, asked.slo)
        lines.append(Line(seen, ran, said, span_of(steps, cap, context), ends))
    may = [line.candidate.batch for line in lines if line.verdict.word in (UNDECIDED, MEASURED)]
    limit = None
    if may:
        stays = next(line.trial.residence for line in lines if line.trial and line.candidate.batch == max(may))
        limit = _limit(asked.configuration(max(may), pool, steps.piece), traffic, stays, steps.seconds, asked.slo, bar)
    return Study(
        asked=asked,
        chosen=chosen,
        placement=placement,
        fit=found,
        pool=pool,
        context=context,
        traffic=traffic,
        steps=steps,
        lines=tuple(lines),
        limit=limit,
        limited=max(may, default=None),
        clients=planned,
        measured=tuple(measured),
    )


def _limit(
    configuration: Configuration, traffic: Traffic, stays: float, seconds: Seconds, slo: SLO, bar: Bar
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

    def measure(rate: float) -> Sequence[RequestRecord]:
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
