"""The simulator. Oracles: the tests' own player (equal digests at equal times), a diary of all that happened, hand arithmetic."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections import deque
from collections.abc import Iterator, MutableSequence

import pytest
from hypothesis import given, settings

from jaxserve.kv.paged import Paged
from jaxserve.load.served import Served
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.simulator.run import simulate
from models.errors import UserError
from tests.jaxserve.scheduling.clock import play
from tests.jaxserve.scheduling.runs import Run, runs
from tests.jaxserve.scheduling.toy import Device, Toy, mixed
from tests.jaxserve.scheduling.workloads import many


class Diary(Observer):
    """Everything that happens, as plain data."""

    def __init__(self) -> None:
        self.plans: list[tuple[float, str]] = []
        self.drawn: dict[int, list[float]] = {}
        self.admitted: dict[int, float] = {}

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if not plan.idle:
            self.plans.append((now, plan.digest))
        for id in plan.admitted:
            self.admitted.setdefault(id, now)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        alive = {row.id for row in (*before.waiting, *before.rows)}
        for id, tokens in zip(plan.ids, outcome.tokens, strict=True):
            if id in alive:
                self.drawn.setdefault(id, []).extend([now] * len(tokens))


class Accepts(Observer):
    """Tells the toy device of requests that were taken in, and of KV that moves."""

    def __init__(self, device: Device):
        self.device = device

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        if refused is None:
            self.device.accept(request)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        for move in plan.hand_offs:
            self.device.move(move)


def seconds(plan: Plan) -> float:
    return 0.25 + 0.01 * plan.tokens * plan.steps + 0.5 * (mixed(plan.step) % 3)


@settings(many, max_examples=60)
@given(run=runs())
def test_it_plays_as_the_player_does(run: Run):
    """All policies, with drafts, samples, cancellations, queues that overflow: the same plans at the same times, and the same ends."""
    load, diaries = run.load, (Diary(), Diary())

    def start() -> tuple[State, Device]:
        state = State.of(*[load.memory() for _ in range(run.workers)])
        return state, Device(Toy(load.vocabulary), [worker.memory.page for worker in state.workers], load.drafts)

    state, device = start()
    watch = Observers(Accepts(device), diaries[0])
    played = play(run.policy, state, load.requests, seconds, device.run, cancels=load.cancels, watch=watch)
    state, device = start()
    watch = Observers(Accepts(device), diaries[1])
    answers: list[Served] = []
    found = simulate(
        run.policy,
        state,
        iter(load.requests),
        seconds,
        run=device.run,
        cancels=load.cancels,
        served=answers.append,
        watch=watch,
    )
    assert diaries[0].plans == diaries[1].plans
    assert found.state == played.state
    assert {a.id: (a.end, a.reason) for a in answers if a.reason in ("length", "stop")} == played.ended
    assert {a.id for a in answers if a.reason == "refused"} == {
        id for r in load.requests if r.id in played.refused for id in range(r.id, r.id + r.samples)
    }
    diary = diaries[0]
    by_id = {answer.id: answer for answer in answers}
    assert len(by_id) == len(answers) == sum(request.samples for request in load.requests) == sum(found.ends.values())
    for request in load.requests:
        for id in range(request.id, request.id + request.samples):
            answer, times = by_id[id], diary.drawn.get(id, [])
            assert (answer.arrival, answer.prompt, answer.tokens) == (request.arrival, len(request.prompt), len(times))
            if times:
                assert (answer.first, answer.last) == (times[0], times[-1]) and answer.admitted == diary.admitted[request.id]
            else:
                assert math.isnan(answer.first) and math.isnan(answer.last)
            assert answer.end >= answer.arrival
    assert found.drawn == sum(map(len, diary.drawn.values()))
    assert found.plans <= found.steps and all(busy <= found.seconds + 1e-9 for busy in found.busy)


def test_times_by_hand():
    """Steps of 1 s, 2 rows. At 0: requests of 3 and 1 tokens. The second ends at 1, so the third, from 0.5, runs from 1 to 3."""
    answers: list[Served] = []
    requests = [Request(0, range(5), 3), Request(1, range(5), 1), Request(2, range(5), 2, arrival=0.5)]
    policy = Continuous(Limits(rows=2))
    found = simulate(policy, State.of(Paged.of(9, 4)), requests, lambda plan: 1.0, served=answers.append)
    assert answers == [
        Served(1, 0.0, 0.0, 1.0, 1.0, 1.0, 5, 1, 0, "length"),
        Served(0, 0.0, 0.0, 1.0, 3.0, 3.0, 5, 3, 0, "length"),
        Served(2, 0.5, 1.0, 2.0, 3.0, 3.0, 5, 2, 0, "length"),
    ]
    assert (found.seconds, found.busy, found.plans, found.steps) == (3.0, (3.0,), 3, 3)
    assert (found.ran, found.drawn, found.ends) == (15 + 2 + 1, 6, {"length": 3})


def test_steps_in_one_plan_count():
    """2 tokens after the prompt's, in one plan of 2 steps."""
    found = simulate(
        Continuous(Limits(rows=2), multi_step=2), State.of(Paged.of(9, 4)), [Request(0, range(5), 3)], lambda plan: 1.0
    )
    assert (found.plans, found.steps, found.ran, found.drawn, found.seconds) == (2, 3, 7, 3, 2.0)


def test_who_goes_before_the_end():
    """One place. The second request has until 2 s and is dropped then; the third goes at 1.5 s; a fourth is longer than the pool."""
    answers: list[Served] = []
    requests = [
        Request(0, range(5), 4),
        Request(1, range(5), 2, deadline=2.0),
        Request(2, range(5), 2, samples=1, arrival=1.0),
        Request(3, range(500), 2, arrival=1.0),
    ]
    policy = Continuous(Limits(rows=1))
    found = simulate(
        policy, State.of(Paged.of(9, 4)), requests, lambda plan: 1.0, cancels=[(1.5, 2), (2.5, 0)], served=answers.append
    )
    assert [(a.id, a.end, a.tokens, a.reason) for a in answers] == [
        (3, 1.0, 0, "refused"),
        (2, 1.5, 0, "cancelled"),
        (1, 2.0, 0, "expired"),
        (0, 2.5, 2, "cancelled"),
    ]
    assert found.ends == {"refused": 1, "cancelled": 2, "expired": 1} and found.drawn == 2 and found.state.idle


def test_cancelling_a_request_takes_the_samples_that_have_not_split():
    answers: list[Served] = []
    policy = Continuous(Limits(rows=3))
    simulate(
        policy,
        State.of(Paged.of(9, 4)),
        [Request(0, range(5), 4, samples=3)],
        lambda plan: 1.0,
        cancels=[(0.5, 1), (0.5, 0)],
        served=answers.append,
    )
    assert [(a.id, a.admitted, a.reason) for a in answers] == [
        (0, 0.0, "cancelled"),
        (1, 0.0, "cancelled"),
        (2, 0.0, "cancelled"),
    ]


def many_requests(count: int, taken: MutableSequence[float]) -> Iterator[Request]:
    for id in range(count):
        taken.append(float(id))
        yield Request(id, range(3), 2, arrival=float(id))


def test_requests_are_taken_one_at_a_time():
    """When a request arrives only the next one has been asked for."""
    taken: list[float] = []
    ahead: list[float] = []
    simulate(
        Continuous(Limits(rows=2)),
        State.of(Paged.of(9, 4)),
        many_requests(50, taken),
        lambda plan: 0.1,
        served=lambda answer: ahead.append(taken[-1] - answer.arrival),
    )
    assert len(ahead) == 50 and max(ahead) == 1.0


def test_memory_is_flat():
    """Eight times the requests, no more memory as the last one ends: 2 kB would be 3 B for each of the 700 more."""
    held: list[int] = []

    def served(answer: Served) -> None:
        if answer.id == count - 1:
            gc.collect()  # which empties Python's own lists of freed tuples too
            held.append(tracemalloc.get_traced_memory()[0])

    for count in (100, 800):
        requests = many_requests(count, deque(maxlen=1))
        tracemalloc.start()
        simulate(Continuous(Limits(rows=2)), State.of(Paged.of(9, 4)), requests, lambda plan: 0.1, served=served)
        tracemalloc.stop()
    assert held[1] - held[0] < 2_000


@pytest.mark.parametrize("took", [0.0, -1.0, math.nan, math.inf])
def test_a_step_takes_time(took: float):
    with pytest.raises(RuntimeError, match=r"plan 0 is said to take"):
        simulate(Continuous(Limits(rows=2)), State.of(Paged.of(9, 4)), [Request(0, range(3), 2)], lambda plan: took)


def test_a_policy_that_waits_for_ever_is_named():
    """A batch of two that never comes, with no delay that would end."""
    with pytest.raises(RuntimeError, match="1 answers wait for ever"):
        simulate(Dynamic(Limits(rows=2), delay=math.inf), State.of(Paged.of(9, 4)), [Request(0, range(3), 2)], lambda plan: 1.0)


def test_requests_that_go_back_in_time_are_refused():
    requests = [Request(0, range(3), 2, arrival=2.0), Request(1, range(3), 2, arrival=1.0)]
    with pytest.raises(UserError, match=r"request 1 arrives at 1\.0 s, before the last one at 2\.0 s; sort them"):
        simulate(Continuous(Limits(rows=2)), State.of(Paged.of(9, 4)), requests, lambda plan: 1.0)
