"""Records of what a scheduler does. Oracles: figures of facts.md, schedules by hand, and the books, which count in another way."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.kv.paged import Paged
from jaxserve.load.parts import STAGES, split
from jaxserve.load.recorder import Recorder, RequestRecord
from jaxserve.load.served import Served
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.step_result import StepResult
from jaxserve.simulator.run import simulate
from models.errors import UserError


def simulated(policy: Policy, requests: list[Request], step: float = 1.0, pages: int = 1000, **more) -> list[RequestRecord]:
    recorder = Recorder()
    simulate(policy, State.of(Paged.of(pages, 4)), requests, lambda plan: step, watch=recorder, **more)
    return recorder.records()


def test_a_batch_that_forms():
    """facts.md, section 5: one every 20 ms, a target of 8: they wait 140, 120, ... 0 ms for company, and for nothing else."""
    requests = [Request(i, range(4), 1, arrival=i * 0.02) for i in range(8)]
    found = simulated(Dynamic(Limits(rows=8), delay=math.inf), requests)
    assert [record.ready - record.submitted for record in found] == pytest.approx([0.14 - 0.02 * i for i in range(8)])
    assert [record.started - record.ready for record in found] == pytest.approx([0.0] * 8)
    assert {record.started for record in found} == {0.14} and {record.prefilled for record in found} == {0.14 + 1.0}
    assert sum(record.ready - record.submitted for record in found) / 8 == pytest.approx(0.070)


def test_a_batch_that_forms_while_another_runs():
    """A pair runs from 0 to 1; one comes at 0.25, in the queue until 1 and then alone until its company comes at 1.5."""
    requests = [Request(i, range(4), 1, arrival=at) for i, at in enumerate((0.0, 0.0, 0.25, 1.5))]
    found = simulated(Dynamic(Limits(rows=2), delay=math.inf), requests)
    waits = [(record.ready - record.submitted, record.started - record.ready) for record in found]
    assert waits == [(0, 0), (0, 0), (0.5, 0.75), (0, 0)] and found[2].started == 1.5


def test_the_queue_delay_bounds_it():
    found = simulated(Dynamic(Limits(rows=8), delay=0.1), [Request(0, range(4), 1, arrival=2.0)])
    assert found[0].ready == found[0].started == pytest.approx(2.1)


def test_no_other_policy_waits_for_company():
    requests = [Request(i, range(4), 3, arrival=i * 0.5) for i in range(6)]
    for policy in (Static(Limits(rows=2)), Continuous(Limits(rows=2)), Chunked(Limits(rows=2), 8)):
        assert all(record.ready == record.submitted for record in simulated(policy, requests))


def test_a_step_planned_ahead_starts_when_the_one_before_has_ended():
    """Steps of 1 s, two of which are planned at 0; the second request comes at 0.5, is planned at 1 and runs when the other ends at 2."""
    policy = Continuous(Limits(rows=2, ahead=1))
    found = simulated(policy, [Request(0, range(4), 3), Request(1, range(4), 1, arrival=0.5)])
    assert (found[1].submitted, found[1].started, found[1].prefilled) == (0.5, 2.0, 3.0)


def test_a_prompt_in_pieces():
    """12 tokens, 4 a step: it starts with the first piece and its first token is known after the third."""
    (found,) = simulated(Chunked(Limits(rows=1), 4), [Request(0, range(12), 2, arrival=1.0)])
    assert (found.started, found.prefilled, found.tokens, found.end) == (1.0, 4.0, (4.0, 5.0), 5.0)


def test_what_was_found_cached():
    recorder = Recorder()
    requests = [Request(0, tuple(range(10)), 1), Request(1, tuple(range(10)), 1, arrival=5.0)]
    simulate(Continuous(), State.of(Paged.of(100, 4, prefix=True)), requests, lambda plan: 1.0, watch=recorder)
    first, second = recorder.records()
    assert first.cached == 0 < second.cached < 10


def test_every_end_has_its_reason():
    """One runs; of two that wait one is refused and one expires; one is cancelled; the last has not ended."""
    recorder = Recorder()
    limits = Limits(rows=1, queue=QueueRule(size=1, timeout=2.5))
    scheduler = Scheduler(Continuous(limits), State.of(Paged.of(100, 4)), recorder)
    scheduler.submit(Request(0, range(4), 9), 0.0)
    plan = scheduler.plan(0.0)
    scheduler.submit(Request(1, range(4), 9), 0.0)
    with pytest.raises(UserError):
        scheduler.submit(Request(2, range(4), 9), 0.5)
    assert plan is not None
    scheduler.update(plan, StepResult(((1,),)), 1.0)
    plan = scheduler.plan(3.0)
    assert plan is not None and plan.expired == (1,)
    scheduler.cancel(0, 3.5)
    scheduler.submit(Request(2, range(4), 9, arrival=4.0), 4.0)
    assert [(record.id, record.reason, record.end) for record in recorder.records()] == [
        (0, "cancelled", 3.5), (1, "expired", 3.0), (2, "refused", 0.5), (2, "unfinished", 4.0)
    ]  # fmt: skip
    found = {record.reason: record for record in recorder.records()}
    assert (
        found["cancelled"].tokens == (1.0,) and math.isnan(found["expired"].started) and math.isnan(found["refused"].prefilled)
    )


def test_samples_and_preemptions():
    """Samples of a request start together; who loses memory keeps its first start, and its tokens."""
    recorder = Recorder()
    requests = [Request(0, range(4), 3, samples=2)]
    simulate(Continuous(), State.of(Paged.of(100, 4)), requests, lambda plan: 1.0, watch=recorder)
    first, second = recorder.records()
    assert first.started == second.started == 0.0 and len(first.tokens) == len(second.tokens) == 3
    again = simulated(Continuous(Limits(rows=2)), [Request(i, range(4), 9) for i in range(2)], pages=4)
    assert sum(record.preemptions for record in again) > 0 and all(record.started == 0.0 for record in again)
    assert all(len(record.tokens) == 9 == len(set(record.tokens)) for record in again)


loads = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(1, 8)), min_size=1, max_size=12)
policies = st.sampled_from(
    [
        Continuous(Limits(rows=3, ahead=1)),
        Continuous(Limits(rows=4), multi_step=3),
        Chunked(Limits(rows=3), 7),
        Static(Limits(rows=3)),
        Dynamic(Limits(rows=3), delay=2.0),
    ]
)


@settings(max_examples=60, deadline=None)
@given(policies, loads)
def test_they_agree_with_the_books(policy: Policy, load: list[tuple[int, int, int]]):
    """First, last and end of every answer; stages in order, so that parts are not negative; all tokens."""
    load.sort()
    requests = [Request(i, range(prompt), limit, arrival=at / 4) for i, (at, prompt, limit) in enumerate(load)]
    answers: list[Served] = []
    found = simulated(policy, requests, pages=12, served=answers.append)
    assert len(found) == len(answers) == len(load)
    for record, answer in zip(found, sorted(answers), strict=True):
        assert (record.id, record.intended, record.prompt, record.output) == (
            answer.id,
            answer.arrival,
            answer.prompt,
            answer.tokens,
        )
        assert (record.preemptions, record.reason, record.end) == (answer.preemptions, answer.reason, answer.end)
        if answer.reason == "refused":
            continue
        assert (record.tokens[0], record.tokens[-1]) == (answer.first, answer.last) and len(record.tokens) == answer.tokens
        stamps = (
            record.intended,
            record.sent,
            record.submitted,
            record.ready,
            record.started,
            record.prefilled,
            record.tokens[0],
        )
        assert list(stamps) == sorted(stamps) and record.started >= answer.admitted
        assert [part.name for part in split(record)] == list(STAGES)
        assert math.fsum(part.seconds for part in split(record)) == pytest.approx(record.ttft)


def test_told_one_by_one():
    told: list[RequestRecord] = []
    recorder = Recorder(told.append)
    simulate(Continuous(), State.of(Paged.of(100, 4)), [Request(0, range(4), 2)], lambda plan: 1.0, watch=recorder)
    assert [record.id for record in told] == [0] and recorder.records() == []
