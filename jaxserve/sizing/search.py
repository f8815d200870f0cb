"""The cheapest deployment that holds an SLO: capacity and the model rule out what they can, and what is left is simulated.

The work is bounded: a run is of so many requests, and at most so many configurations are run, the cheapest first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from costmodel.capacity import divides
from costmodel.cli.choices import ModelChoice
from costmodel.sizing import CAPACITY, MODEL, UNDECIDED, Placement, Verdict, candidate, check_goal
from jaxserve.deployment.step_times import StepTimes, step_times
from jaxserve.sizing.line import missed
from jaxserve.sizing.spec import SizingSpec
from jaxserve.sizing.study import Bar
from jaxserve.sizing.traffic import Traffic
from jaxserve.sizing.trial import Configuration, Saturated, Trial, saturated_throughput, trial
from models.errors import UserError

DEGREES = (1, 2, 4, 8)  # that are looked at where nothing else is said
CAPS = (8, 16, 32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True)
class Option:
    """One deployment. `configuration` is None where weights and pool do not fit, whatever the policy.

    Attributes:
      cost: USD/h where prices were given, else the number of chips.
      rank: the cheap come first: the cost; without prices also the bandwidth of a chip, for the slower of two is seldom the dearer.
      trial, saturated_throughput: None where it was ruled out, or not reached.
    """

    placement: Placement
    configuration: Configuration | None
    cost: float
    rank: tuple[float, ...]
    verdict: Verdict
    trial: Trial | None = None
    saturated_throughput: Saturated | None = None

    @property
    def chips(self) -> str:
        return f"{self.placement.degree} x {self.placement.chip.name}"

    @property
    def meets(self) -> bool:
        """As far as a simulation can say."""
        return self.trial is not None and self.trial.met

    @property
    def used(self) -> float:
        """The largest part of a limit of the SLO that it uses up: 1 is all of it."""
        assert self.trial is not None
        return max(verdict.found / verdict.limit for verdict in self.trial.summary.verdicts)

    @property
    def per_chip(self) -> float:
        """Tokens of answers a second and chip, when never short of work."""
        assert self.saturated_throughput is not None
        return self.saturated_throughput.tokens_per_s / self.placement.degree


class Search(NamedTuple):
    """What was found.

    Attributes:
      options: all that were looked at, the cheapest first.
      best: the cheapest that meets the SLO, see `Option.rank`; of those that are as cheap, the one that uses least of its limits. None
        where none does.
      order: what cheap means, for people.
      left: options that the model allows and that were not run, for there were more than `SizingSpec` allows.
    """

    asked: SizingSpec
    chosen: ModelChoice
    traffic: Traffic
    options: tuple[Option, ...]
    best: Option | None
    order: str
    left: int

    @property
    def frontier(self) -> tuple[Option, ...]:
        """Of those that were flooded, those for which no other has more tokens a second and chip at no longer an ITL; by ITL."""
        kept: list[Option] = []
        ran = [option for option in self.options if option.saturated_throughput is not None]
        for option in sorted(
            ran,
            key=lambda option: (
                (option.saturated_throughput.itl, -option.per_chip) if option.saturated_throughput else (0.0, 0.0)
            ),
        ):
            if not kept or option.per_chip > kept[-1].per_chip:
                kept.append(option)
        return tuple(kept)


def search(asked: SizingSpec, prices: Mapping[str, float], most: int, bar: Bar) -> Search:
    """Look for it.

    Args:
      prices: USD/h of a chip by its name; empty for none.
      most: configurations to simulate at most.

    Raises:
      UserError: a price of a chip that isn't asked for, or one without a price beside others that have one; see `SizingSpec`.
    """
    chosen = asked.choose()
    traffic = asked.traffic(chosen)
    chips = asked.chips()
    missing = [chip.name for chip in chips if chip.name not in prices]
    if prices and missing:
        raise UserError(f"--price says nothing of {', '.join(missing)}; give a price for each chip, or for none")
    if unknown := [name for name in prices if name not in {chip.name for chip in chips}]:
        raise UserError(f"--price names {', '.join(unknown)}, which --chip does not; add --chip {unknown[0]}")
    options = sorted(_options(asked, chosen, traffic, prices), key=lambda option: option.rank)
    open = [i for i, option in enumerate(options) if option.verdict.word == UNDECIDED]
    advance = bar("simulating, configurations", min(len(open), most))
    times: dict[tuple[str, int], StepTimes] = {}
    free: dict[tuple[str, int, str], Trial] = {}  # runs in which the cap kept nobody out, so that a larger one changes nothing
    for i in open[:most]:
        option = options[i]
        placement, configuration = option.placement, option.configuration
        assert configuration is not None
        key = placement.chip.name, placement.degree
        if key not in times:
            times[key] = step_times(placement, asked.step_times, asked.silicon)
        steps = times[key]
        kind = (*key, configuration.name)
        ran = free.get(kind) or trial(configuration, traffic, steps.seconds, asked.slo)
        if ran.active.most < configuration.cap:
            free[kind] = ran
        quick = None if ran.met or steps.quick is None else trial(configuration, traffic, steps.quick, asked.slo)
        verdict = missed(ran, quick, steps.witness) or option.verdict
        full = saturated_throughput(configuration, traffic, steps.seconds)
        options[i] = dataclasses.replace(option, trial=ran, saturated_throughput=full, verdict=verdict)
        advance(1)
    best = min((option for option in options if option.meets), key=lambda option: (option.rank, option.used), default=None)
    unpriced = "the number of chips, for no prices were given (--price); of as many, the chip of less bandwidth first"
    order = "USD/h as given" if prices else unpriced
    return Search(asked, chosen, traffic, tuple(options), best, order, max(len(open) - most, 0))


def _options(asked: SizingSpec, chosen: ModelChoice, traffic: Traffic, prices: Mapping[str, float]) -> Iterator[Option]:
    """Every combination, with what capacity and the model say of it. What nothing can mend is one option and not one for each cap."""
    degrees = asked.tensor_parallel or [n for n in DEGREES if divides(chosen.architecture, n)]
    demand = traffic.demand
    for chip in asked.chips():
        for degree in degrees:
            placement = asked.placement(chosen, chip, degree)
            cost = prices.get(chip.name, 1.0) * degree
            rank = (cost,) if prices else (cost, float(chip.bandwidth))
            if degree > 1 and chip.link_bandwidth is None:
                yield Option(placement, None, cost, rank, Verdict(MODEL, f"no link bandwidth of {chip.name} is known"))
                continue
            room = asked.fit(placement, max(asked.batch or CAPS))
            if not room.fits or not (asked.kv_pool or room.room):
                yield Option(placement, None, cost, rank, Verdict(CAPACITY, room.verdict))
                continue
            try:
                check_goal(placement, asked.goal, demand)
            except UserError as error:
                yield Option(placement, None, cost, rank, Verdict(MODEL, str(error).partition(";")[0]))
                continue
            pool = asked.pool(placement, room)
            mean = round(demand.prompt + demand.answer)
            sequences = pool.sequences(mean)
            busy = placement.busy(demand)
            for cap in asked.batch or [cap for cap in CAPS if cap <= max(sequences, CAPS[0])]:
                seen = candidate(placement, pool, cap, mean, demand)
                overload = seen.overload(demand, busy)
                verdict = Verdict(MODEL, overload) if overload else Verdict(UNDECIDED, "the model sees no reason against it")
                if pool.sequences(traffic.longest) < 1:
                    verdict = Verdict(CAPACITY, f"the pool does not hold one sequence of {traffic.longest} tokens")
                for policy in asked.policy:
                    configuration = dataclasses.replace(asked.configuration(cap, pool), policy=policy)
                    yield Option(placement, configuration, cost, rank, verdict)
