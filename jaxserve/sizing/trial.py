"""One configuration under one traffic, on a virtual clock: the real policy over the real pages, with step times of a model."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from costmodel.concurrency.queueing import concurrency
from jaxserve.kv.paged import Paged
from jaxserve.load.metrics import Summary, per, summarise
from jaxserve.load.percentile import percentile
from jaxserve.load.recorder import Recorder, RequestRecord
from jaxserve.load.slo import SLO
from jaxserve.load.stability import Growth, growth
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.registry import check_name, make_policy, takes
from jaxserve.scheduling.state import State
from jaxserve.simulator.run import SimulationResult, simulate
from jaxserve.sizing.traffic import Traffic, judged

TURNS, LEAST = 3, 48  # requests of a flood


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What decides who runs: a policy with its cap, and the pages that it admits into.

    Attributes:
      policy: one of `registry.POLICIES` that runs on one KV pool, or MODULE:NAME of one's own.
      cap: sequences that may be active at once (max_num_seqs). It reserves no memory: pages decide who comes in.
      budget: tokens of a step, of the chunked policy; with more sequences than that, as many as those.
      pages, page: of the pool, and tokens of each.
      piece: tokens that programs fill a part of a prompt up to, of the chunked policy.
    """

    policy: str
    cap: int
    budget: int
    pages: int
    page: int
    piece: int = 1

    @property
    def budgeted(self) -> bool:
        """The policy takes a budget of tokens a step."""
        return takes(self.policy, "budget")

    @property
    def tokens(self) -> int:
        """Of a step at most, chunked: each sequence must be able to go on."""
        return max(self.budget, self.cap)

    @property
    def name(self) -> str:
        return f"{self.policy} {self.tokens}" if self.budgeted else self.policy

    def make(self) -> tuple[Policy, State]:
        """The policy and an empty state. Raises UserError for a policy that is none, or that wants several KV pools."""
        check_name(self.policy, one_worker=True)
        limits = Limits(rows=self.cap)
        state = State.of(Paged.of(self.pages, self.page))
        return make_policy(self.policy, limits, {}, {"budget": self.tokens, "piece": self.piece}), state


class Tally(NamedTuple):
    """How many there are of something, over the steps of a run: the mean of all steps, and the most."""

    mean: float
    most: int


class BatchOccupancy(Observer):
    """Counts at every step: sequences in it, places that are taken, pages that are held. Memory is flat.

    A place is taken by a sequence with memory, and in a static batch by one that has ended until the longest has.
    """

    def __init__(self) -> None:
        self.steps = self._rows = self._active = 0
        self._most_rows = self._most_active = self.pages = 0

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if not plan.ids:
            return
        worker, rows = after.workers[plan.worker], len(plan.ids)
        active = max(len(worker.rows), plan.slots)
        self.steps += plan.steps
        self._rows += rows * plan.steps
        self._active += active * plan.steps
        self._most_rows, self._most_active = max(self._most_rows, rows), max(self._most_active, active)
        self.pages = max(self.pages, worker.memory.in_use)

    @property
    def batch(self) -> Tally:
        """Sequences in one step."""
        return Tally(self._rows / self.steps, self._most_rows)

    @property
    def active(self) -> Tally:
        """Places that are taken, whether a step runs their sequences or not."""
        return Tally(self._active / self.steps, self._most_active)


class Trial(NamedTuple):
    """What a run came to (witness: simulated).

    Attributes:
      summary: of the requests that are judged, see `traffic.judged`.
      tokens_per_s: drawn between the first and the last judged arrival, for whomever: what is served, where more is offered too. nan
        where they are one.
      growth: of TTFT over the run: whether work piles up.
      within: requests in the system, waiting or served, on average over the judged arrivals (Little's rate times residence).
      residence: mean s from arrival to end of those that are judged.
      batch, active: see `BatchOccupancy`.
      pages: the most that were in use.
      preemptions: times a sequence lost its memory.
      records: of all requests, by id.
      run: totals.
    """

    summary: Summary
    tokens_per_s: float
    growth: Growth
    within: float
    residence: float
    batch: Tally
    active: Tally
    pages: int
    preemptions: int
    records: tuple[RequestRecord, ...]
    run: SimulationResult

    @property
    def met(self) -> bool:
        """Every limit of the SLO is kept, and work doesn't pile up."""
        return self.summary.met is not False and not self.growth.grows

    @property
    def hasty(self) -> bool:
        """The system was still filling up when the first request that is judged came: a longer run may well look worse."""
        return self.records[judged(len(self.records))][0].intended < self.residence

    @property
    def missed(self) -> str:
        """Why not, for people; "" where it is met."""
        words = [f"{v.name} {v.found * 1e3:,.1f} ms over {v.limit * 1e3:g} ms" for v in self.summary.verdicts if not v.met]
        if self.growth.grows:
            words.append("TTFT grows as long as the load lasts")
        return ", ".join(words)


def trial(
    configuration: Configuration,
    traffic: Traffic,
    seconds: Callable[[Plan], float],
    slo: SLO | None,
    advance: Callable[[int], None] = lambda n: None,
    watches: Sequence[Observer] = (),
) -> Trial:
    """Run it.

    Args:
      seconds: what a plan takes, see `jaxserve.deployment.step_times`.
      advance: called with 1 for each request that is over.
      watches: see the run as well.
    """
    policy, state = configuration.make()
    kept: list[RequestRecord] = []

    def over(record: RequestRecord) -> None:
        kept.append(record)
        advance(1)

    occupied = BatchOccupancy()
    run = simulate(policy, state, traffic.requests, seconds, watch=Observers(Recorder(over), occupied, *watches))
    records = tuple(sorted(kept, key=lambda record: record.id))
    mine = records[judged(len(records))]
    begin, last = mine[0].intended, mine[-1].intended
    drawn = sum(begin < at <= last for record in records for at in record.tokens)
    summary = summarise(mine, duration=max(record.end for record in mine) - begin, slo=slo)
    arrived = [record.intended for record in records]
    residence = sum(record.end - record.intended for record in mine) / len(mine)
    return Trial(
        summary=summary,
        tokens_per_s=per(drawn, last - begin),
        growth=growth(arrived, [record.ttft for record in records]),
        within=concurrency(traffic.rate, residence),
        residence=residence,
        batch=occupied.batch,
        active=occupied.active,
        pages=occupied.pages,
        preemptions=run.preemptions,
        records=records,
        run=run,
    )


class Saturated(NamedTuple):
    """An engine that is never short of work: all requests are there at once (witness: simulated).

    Attributes:
      tokens_per_s: of answers, while requests still wait for a place.
      itl: P95 of the gaps in that time, s; nan where there are none.
      batch: sequences of a step, in all of the run.
    """

    tokens_per_s: float
    itl: float
    batch: Tally


def saturated_throughput(
    configuration: Configuration, traffic: Traffic, seconds: Callable[[Plan], float], count: int | None = None
) -> Saturated:
    """Run requests that are all there at the start.

    What comes after the last was admitted isn't counted, for from then on the batch shrinks.

    Args:
      count: how many, those of the traffic over and over. None: `TURNS` times as many as the cap, so that it stays full, and at least
        `LEAST`.
    """
    count = max(TURNS * configuration.cap, LEAST) if count is None else count
    policy, state = configuration.make()
    recorder, occupied = Recorder(), BatchOccupancy()
    simulate(
        policy,
        state,
        traffic.at_once(count).requests,
        seconds,
        watch=Observers(recorder, occupied),
    )
    records = recorder.records()
    last = max(record.started for record in records)
    stop = last if last > 0 else max(record.end for record in records)
    drawn = sum(sum(at <= stop for at in record.tokens) for record in records)
    gaps = [b - a for record in records for a, b in itertools.pairwise(record.tokens) if b <= stop]
    return Saturated(drawn / stop, percentile(gaps, 95), occupied.batch)
