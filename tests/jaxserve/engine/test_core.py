"""The loop of an engine: in which order things happen, and what of the time is whose.

Oracles: a list of what happened, in the order in which it did; and a clock that only moves where the test says so.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from jaxserve.engine.engine import Engine
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State
from jaxserve.scheduling.transfer import Link
from tests.jaxserve.engines import ALL_KIT, Clock, engine, nothing_left, numbered, run
from tests.jaxserve.proofs import greedy_answer

PLAIN = SamplingParams(max_tokens=6, ignore_eos=True)


class Still(Clock):
    """Time that passes only where a test lets it."""

    def __call__(self) -> float:
        return self.now


def wrap(owner: Any, name: str, before: Callable[..., None]) -> None:
    """Let something happen before each call of a method."""
    inner = getattr(owner, name)

    def wrapped(*given: Any, **more: Any) -> Any:
        before(*given)
        return inner(*given, **more)

    setattr(owner, name, wrapped)


def watched(one: Engine) -> list[tuple[str, int]]:
    """(what, serial number of the plan), as it happens."""
    happened: list[tuple[str, int]] = []
    for executor in one._loop._executors:
        wrap(executor, "dispatch", lambda flight: happened.append(("dispatch", flight.plan.step)))
        wrap(executor, "wait", lambda flight: happened.append(("wait", flight.plan.step)))
    wrap(one._clients, "unpack", lambda flight, *rest: happened.append(("unpack", flight.plan.step)))
    wrap(one._loop._packer, "pack", lambda plan, *rest: happened.append(("pack", plan.step)))
    return happened


def order(happened: list[tuple[str, int]], *wanted: tuple[str, int]) -> bool:
    return [happened.index(each) for each in wanted] == sorted(happened.index(each) for each in wanted)


def test_a_step_planned_ahead_is_handed_over_before_the_last_one_is_unpacked():
    one = engine(Continuous(Limits(rows=2, ahead=1)))
    happened = watched(one)
    handles = [one.submit(numbered(i, 5), PLAIN) for i in range(2)]
    run(one)
    assert [handle.answers[0].tokens for handle in handles] == [greedy_answer(numbered(i, 5), 6) for i in range(2)]
    for n in range(4):
        assert order(happened, ("dispatch", n), ("pack", n + 1), ("wait", n), ("dispatch", n + 1), ("unpack", n)), (
            n,
            happened,
        )


def test_without_planning_ahead_each_step_knows_all_before_it():
    one = engine(Continuous(Limits(rows=2)))
    happened = watched(one)
    one.submit(numbered(0, 5), PLAIN)
    run(one)
    for n in range(4):
        assert order(happened, ("pack", n), ("dispatch", n), ("wait", n), ("unpack", n), ("pack", n + 1)), (n, happened)


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_turn_waits_for_the_device_once_at_most(ahead: int):
    one = engine(Chunked(Limits(rows=3, ahead=ahead), 6))
    happened = watched(one)
    for i in range(5):
        one.submit(numbered(i, 7), PLAIN)
    under_way = set()
    while not one.idle:
        before = len(happened)
        one.step()
        assert sum(what == "wait" for what, _ in happened[before:]) <= 1
        under_way.add(len(one._loop._planned) + len(one._loop._flying))
        assert len(one._loop._flying) <= 1, "a worker runs one step at a time: the next one goes on from its tokens"
    assert max(under_way) == ahead, under_way  # after a turn the oldest has landed
    nothing_left(one)


def test_workers_run_at_the_same_time():
    one = engine(Disaggregated(Link(1, 1e9), Limits(rows=4)), workers=2)
    flying = []
    wrap(one._loop._executors[0], "wait", lambda *given: flying.append(len(one._loop._flying)))
    wrap(one._loop._executors[1], "wait", lambda *given: flying.append(len(one._loop._flying)))
    for i in range(6):
        one.submit(numbered(i, 9), PLAIN)
        one.step()
    run(one)
    assert max(flying) == 1, flying  # one is being waited for, the other is under way
    nothing_left(one)


def timed(ahead: int, away: float) -> Engine:
    """What each thing takes stands there, s; predicting takes 4, and the caller `away` between turns."""
    clock = Still()

    def takes(seconds: float) -> Callable[..., Any]:
        return lambda *given: setattr(clock, "now", clock.now + seconds)

    one = engine(Continuous(Limits(rows=2, ahead=ahead)), clock=clock, predictor=takes(4))
    wrap(one._loop._packer, "pack", takes(2))
    for name, seconds in (("fill", 10), ("wait", 7), ("learn", 1)):
        wrap(one._loop._executors[0], name, takes(seconds))
    wrap(one._clients, "unpack", takes(3))
    one.submit(numbered(0, 5), PLAIN)
    while not one.idle:
        one.step()
        clock.now += away
        one.wait()
    clock.now += 1000  # nothing to do is nobody's fault
    one.submit(numbered(1, 5), PLAIN)
    while not one.idle:
        one.step()
        clock.now += away
    return one


@pytest.mark.parametrize("away", [0.0, 100.0])
def test_the_gap_is_what_the_host_took_while_the_device_had_nothing_to_do(away: float):
    """Learning, unpacking, packing and filling in; nothing before the first step after idleness, nothing of what the caller did, and
    nothing of what is only for the record: that is found out while the device runs."""
    one = timed(0, away)
    assert [record.host for record in one.records] == [0, 16, 16, 16, 16, 16] * 2
    assert [record.measured for record in one.records] == [4 + 7] * 12


@pytest.mark.parametrize("away", [0.0, 100.0])
def test_planning_ahead_leaves_only_the_tokens_to_be_learnt_and_filled_in(away: float):
    one = timed(1, away)
    assert [record.host for record in one.records] == [0, 11, 11, 11, 11, 11] * 2


def test_wait_sleeps_until_the_policys_timer_and_no_longer():
    clock = Still()
    one = engine(Dynamic(Limits(rows=4), delay=5.0), clock=clock)
    clock.now = 10.0
    handle = one.submit(numbered(0, 5), PLAIN)
    assert one.step() == [] and not one.idle
    one.wait(until=12.0)  # when somebody is to arrive
    assert clock.now == 12.0 and one.step() == []
    one.wait(until=99.0)
    assert clock.now == 15.0
    one.step()
    assert len(handle.answers[0].tokens) == 1
    before = clock.now
    one.wait()  # a step can be tried
    assert clock.now == before
    run(one)
    one.wait()  # nothing to wait for
    assert clock.now == before


def test_wait_returns_at_once_where_news_has_come():
    clock = Still()
    one = engine(Dynamic(Limits(rows=2), delay=5.0), clock=clock)
    one.submit(numbered(0, 5), PLAIN)
    assert one.step() == []
    one.submit(numbered(1, 5), PLAIN)  # now they are two
    one.wait()
    assert clock.now == 0 and one.step()


@dataclasses.dataclass(frozen=True)
class Stuck:
    """A policy that never runs anybody."""

    limits: Limits = dataclasses.field(default_factory=Limits)
    multi_step: int = 1

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        return Plan(state.steps), state


def test_a_policy_that_makes_no_progress_is_found_out():
    one = engine(Stuck(Limits(rows=4)))
    one.wait()  # idle
    one.submit(numbered(0, 5), PLAIN)
    assert one.step() == []
    with pytest.raises(RuntimeError, match="the policy makes no progress with 1 requests in its queue"):
        one.wait()


def test_records_add_up():
    """Prompts, drafts and answers counted by hand, from what the clients have."""
    predicted = itertools.count(1)
    one = engine(Chunked(Limits(rows=4, ahead=1), 5), predictor=lambda plan: float(next(predicted)))
    sizes = [1, 4, 6, 11, 16, 5]  # some end with a piece of one token
    handles = [one.submit(numbered(i, size), PLAIN) for i, size in enumerate(sizes)]
    run(one)
    records, status = list(one.records), one.status()
    assert [record.step for record in records] == list(range(len(records))) and status.steps == len(records)
    assert sum(record.prefill for record in records) == sum(sizes) == status.prefill
    drawn = sum(len(handle.answers[0].tokens) for handle in handles)
    assert sum(record.drawn for record in records) == drawn == status.drawn == 36
    # Every token but a first one follows a decode. Planned ahead, a row that ends is planned no further.
    assert sum(record.decode for record in records) == drawn - len(sizes)
    assert sum(record.draft for record in records) == 0
    known = {program.bucket.name for program in one.programs}
    assert all(record.programs and set(record.programs) <= known for record in records)
    assert [record.predicted for record in records] == list(range(1, len(records) + 1))
    assert len({record.digest for record in records}) == len(records)
    assert all(a.at < b.at for a, b in itertools.pairwise(records)) and all(record.measured > 0 for record in records)
    assert max(record.rows for record in records) == 4 and max(record.pages for record in records) <= 44


def test_padding_is_counted():
    """3 rows in a decode of 4; 3 pieces of a prompt in two prefills of 2."""
    one = engine(Continuous(Limits(rows=4)))
    for i in range(3):
        one.submit(numbered(i, 8), SamplingParams(max_tokens=2, ignore_eos=True))
    run(one)
    first, second = one.records
    assert first.programs == ("prefill 2x8", "prefill 2x8") and first.padded == 1 and first.rows == 3
    assert second.programs == ("decode 4",) and second.padded == 1 and math.isclose(second.decode, 3)


def test_a_row_that_ended_while_it_was_planned_ahead_counts_no_more():
    """It runs once too often; what it draws there is nobody's."""
    answer = greedy_answer(numbered(2, 5), 3)
    one = engine(Continuous(Limits(rows=1, ahead=1)), ALL_KIT)
    handle = one.submit(numbered(2, 5), SamplingParams(stop_ids=answer[2:], ignore_eos=True, max_tokens=9))
    run(one)
    assert handle.answers[0].tokens == answer
    assert sum(record.drawn for record in one.records) == 3 == one.status().drawn
    assert len(handle.token_times[0]) == 3
    nothing_left(one)
