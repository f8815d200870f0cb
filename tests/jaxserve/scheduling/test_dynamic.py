"""Dynamic batching. Oracles: the arrival examples of facts.md section 5, an Erlang distribution's mean, and cases worked out by hand.

Clocks count in whatever unit an example is stated in; only the Poisson ones are in seconds.
"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.admission import submit
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import QueueFull, Request
from jaxserve.scheduling.state import State
from models.errors import UserError
from tests.jaxserve.scheduling.clock import Played, play
from tests.jaxserve.scheduling.laws import obeys
from tests.jaxserve.scheduling.workloads import Workload, many, workloads


def ask(arrivals: list[float], *, samples: int = 1, priorities: list[int] | None = None, limit: int = 1) -> list[Request]:
    levels = priorities or [1] * len(arrivals)
    return [
        Request(i * samples, (1,), limit, at, priority=level, samples=samples)
        for i, (at, level) in enumerate(zip(arrivals, levels, strict=True))
    ]


def served(policy: Dynamic, requests: list[Request], seconds: float = 0.0) -> Played:
    return play(policy, State.of(Paged.of(1000, 1)), requests, lambda plan: seconds, most=10**6)


def batches(played: Played) -> list[tuple[float, tuple[int, ...]]]:
    """When each left, and who was in it."""
    return [(at, plan.admitted) for at, plan in played.plans if plan.admitted]


def waits(played: Played, requests: list[Request]) -> list[float]:
    left = {id: at for at, ids in batches(played) for id in ids}
    return [left[request.id] - request.arrival for request in requests]


@pytest.mark.slow
@many
@given(load=workloads(), delay=st.sampled_from([0.0, 1.0, 6.0]), data=st.data())
def test_laws(load: Workload, delay: float, data: st.DataObject):
    preferred = data.draw(st.none() | st.lists(st.integers(1, load.limits.rows), min_size=1, max_size=3).map(tuple))
    obeys(Dynamic(load.limits, preferred, delay, load.multi_step), load)


def test_arrivals_every_20_ms_and_a_batch_of_8():
    """facts.md: the waits are 140, 120, .. 0 ms, 70 in the mean, 140 exactly at most."""
    requests = ask([20.0 * i for i in range(24)])
    played = served(Dynamic(Limits(rows=8), delay=math.inf), requests)
    assert waits(played, requests) == [140.0, 120.0, 100.0, 80.0, 60.0, 40.0, 20.0, 0.0] * 3
    assert sum(waits(played, requests)) / 24 == 70


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "size", "mean"), [(50, 8, 0.140), (25, 4, 0.120)])
def test_poisson_arrivals_wait_for_an_erlang_time(rate: int, size: int, mean: float):
    """facts.md: the first of a batch waits for size - 1 more arrivals, in the mean (size - 1) / rate; sometimes much longer.

    1500 batches; the standard error of their mean is sqrt(size - 1) / rate / sqrt(1500), and four of them are allowed.
    """
    random_numbers, now, arrivals = random.Random(7), 0.0, []
    for _ in range(1500 * size):
        now += random_numbers.expovariate(rate)
        arrivals.append(now)
    requests = ask(arrivals)
    first = waits(served(Dynamic(Limits(rows=size), delay=math.inf), requests), requests)[::size]
    assert sum(first) / 1500 == pytest.approx(mean, abs=4 * math.sqrt(size - 1) / rate / math.sqrt(1500))
    assert max(first) > 2 * mean
    bounded = waits(served(Dynamic(Limits(rows=size), delay=mean), requests), requests)
    assert max(bounded) == pytest.approx(mean), "the timer sends the partial batch"


def test_a_partial_batch_leaves_at_the_deadline_of_its_oldest():
    requests = ask([0.0, 3.0, 9.0, 20.0])
    played = served(Dynamic(Limits(rows=8), delay=10.0), requests)
    assert batches(played) == [(10.0, (0, 1, 2)), (30.0, (3,))]


@pytest.mark.parametrize(
    ("preferred", "left"),
    [
        (None, [(0.0, (0, 1, 2, 3, 4, 5)), (10.0, (6,))]),
        ((4,), [(0.0, (0, 1, 2, 3)), (10.0, (4, 5, 6))]),
        ((2, 5), [(0.0, (0, 1, 2, 3, 4)), (0.0, (5, 6))]),
        ((4, 3), [(0.0, (0, 1, 2, 3)), (0.0, (4, 5, 6))]),
        ((1,), [(0.0, (0,)), (0.0, (1,)), (0.0, (2,)), (0.0, (3,)), (0.0, (4,)), (0.0, (5,)), (0.0, (6,))]),
    ],
)
def test_the_largest_preferred_size_leaves_at_once(preferred: tuple[int, ...] | None, left: list):
    """Seven at once, batches of at most six."""
    played = served(Dynamic(Limits(rows=6), preferred, delay=10.0), ask([0.0] * 7))
    assert batches(played) == left


def test_without_a_delay_whoever_is_there_leaves():
    assert batches(served(Dynamic(Limits(rows=8)), ask([0.0, 0.0, 1.0]))) == [(0.0, (0, 1)), (1.0, (2,))]


def test_a_busy_server_batches_even_without_a_delay():
    """A batch takes 10; what comes meanwhile leaves together when it has ended."""
    played = served(Dynamic(Limits(rows=8)), ask([0.0, 1.0, 2.0, 3.0, 25.0]), seconds=10.0)
    assert batches(played) == [(0.0, (0,)), (10.0, (1, 2, 3)), (25.0, (4,))]


def test_an_item_that_overshoots_every_preferred_size_leaves_at_once():
    """Three samples, preferred size 2: no company could ever make it two."""
    played = served(Dynamic(Limits(rows=4), (2,), delay=math.inf), ask([0.0], samples=3, limit=1))
    assert batches(played) == [(0.0, (0,))] and set(played.ended) == {0, 1, 2}


def test_a_batch_that_the_next_item_does_not_fit_leaves_at_once():
    """Two samples wait, three come, at most four run: the two wait no longer, for in order nobody else can join them."""
    requests = [Request(0, (1,), 1, 0.0, samples=2), Request(2, (1,), 1, 1.0, samples=3)]
    played = served(Dynamic(Limits(rows=4), delay=50.0), requests)
    assert batches(played) == [(1.0, (0,)), (51.0, (2,))]


def test_an_item_larger_than_the_largest_batch_is_refused():
    played = served(Dynamic(Limits(rows=4)), ask([0.0, 1.0], samples=5))
    with pytest.raises(UserError, match="asks for 5 samples, but at most 4 rows run at once"):
        raise played.refused[0]
    assert not played.plans


def test_priorities_go_first_and_each_level_in_order():
    requests = ask([0.0, 1.0, 2.0, 3.0, 4.0], priorities=[2, 3, 1, 2, 1])
    played = served(Dynamic(Limits(rows=2), delay=0.0), requests, seconds=10.0)
    assert batches(played) == [(0.0, (0,)), (10.0, (2, 4)), (20.0, (3, 1))]


def test_a_full_queue_refuses_and_serves_the_rest():
    rule = QueueRule(size=3)
    played = served(Dynamic(Limits(rows=2, queue=rule)), ask([0.0] * 8), seconds=10.0)
    assert sorted(played.refused) == [3, 4, 5, 6, 7] and sorted(played.ended) == [0, 1, 2]
    assert all(isinstance(error, QueueFull) for error in played.refused.values())
    assert "3 requests of priority 1 wait already and the limit is 3" in str(played.refused[3])


def test_each_level_has_a_queue_of_its_own():
    limits = Limits(rows=8, levels={2: QueueRule(size=1)})
    played = served(Dynamic(limits, delay=5.0), ask([0.0] * 4, priorities=[1, 2, 2, 1]))
    assert sorted(played.refused) == [2]


@pytest.mark.parametrize(
    ("late", "left", "expired"),
    [
        ("reject", [(0.0, (0,)), (10.0, (3,))], [(4.0, (1,)), (5.0, (2,))]),
        ("delay", [(0.0, (0,)), (10.0, (3,)), (20.0, (1,)), (30.0, (2,))], []),
    ],
)
def test_who_waits_too_long_is_dropped_or_falls_behind(late: str, left: list, expired: list):
    """Batches of one that take 10; a wait of 3 is too long. Request 3 comes late enough to be in time."""
    rule = QueueRule(timeout=3.0, late=late)  # type: ignore[arg-type]
    played = served(Dynamic(Limits(rows=1, queue=rule)), ask([0.0, 1.0, 2.0, 8.0]), seconds=10.0)
    assert batches(played) == left
    assert [(at, plan.expired) for at, plan in played.plans if plan.expired] == expired


def test_late_requests_go_after_their_level_and_before_lower_ones():
    rule = QueueRule(timeout=3.0, late="delay")
    requests = ask([0.0, 1.0, 1.0, 9.0], priorities=[1, 1, 2, 1])
    played = served(Dynamic(Limits(rows=1, levels={1: rule})), requests, seconds=10.0)
    assert batches(played) == [(0.0, (0,)), (10.0, (3,)), (20.0, (1,)), (30.0, (2,))]


def test_samples_that_found_no_memory_need_not_wait_for_company():
    """Two samples whose memory holds one life: the second is preempted and, though the delay has no end, runs again at once."""
    played = play(Dynamic(Limits(rows=2), delay=math.inf), State.of(Paged.of(4, 1)), [Request(0, (1, 1), 3, samples=2)])
    assert sorted(played.ended) == [0, 1] and any(plan.preempted for _, plan in played.plans)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Dynamic(Limits(rows=4), (5,)),
            r"preferred batch sizes are \[5\]; they must lie between 1 and the largest batch, 4",
        ),
        (lambda: Dynamic(Limits(rows=4), (0,)), "a preferred batch size is 0; it must be a whole number of at least 1"),
        (lambda: Dynamic(Limits(rows=4), ()), r"preferred batch sizes are \[\]"),
        (lambda: Dynamic(Limits(rows=4), delay=-1.0), "the queue delay is -1.0; it must be at least 0, in s"),
        (lambda: Dynamic(Limits(rows=4), delay=math.nan), "the queue delay is nan"),
        (lambda: QueueRule(size=0), "the number of requests that may wait is 0; allow at least 1, or None"),
        (lambda: QueueRule(timeout=0.0), "the queue timeout is 0.0; it must be above 0, in s"),
        (lambda: QueueRule(late="drop"), "late requests can't be treated as 'drop'"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_make_no_sense(make, message: str):
    with pytest.raises(UserError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_an_idle_plan_names_the_time_to_come_back():
    policy, state = Dynamic(Limits(rows=8), delay=10.0), State.of(Paged.of(10, 1))
    assert policy(state, 0.0) == (Plan(0), state)
    state = submit(state, Request(0, (1,), 1, arrival=2.0, deadline=7.0), policy.limits)
    assert policy(state, 2.0)[0].wake == 7.0
