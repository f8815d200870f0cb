"""What is known already is not run again, and changes no answer. Oracle: the toy model run alone; hits and evictions by hand."""

from __future__ import annotations

import pytest

from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.transfer import Link
from tests.jaxserve.scheduling.clock import Played, play
from tests.jaxserve.scheduling.toy import Device, Toy

MODEL = Toy(1_000_003)  # so that answers practically never stop by themselves


class Accepting(Observer):
    def __init__(self, device: Device):
        self.device = device

    def submitted(self, state, request, refused, now):
        self.device.accept(request)


def run(requests: list[Request], memory, policy: Policy | None = None) -> tuple[Played, Device]:
    device = Device(MODEL, [memory.page], drafts=0)
    played = play(policy or Continuous(), State.of(memory), requests, run=device.run, watch=Accepting(device))
    for request in requests:
        for sample in range(request.samples):
            assert device.answer(request.id + sample) == MODEL.answer(request, sample)
    return played, device


def admissions(played: Played) -> list[tuple[int, int]]:
    """(first token, tokens) that each request runs when it is admitted."""
    tasks = [(plan, row) for _, plan in played.plans for row in plan.rows if row.id in plan.admitted]
    return [(row.start, row.count) for _, row in tasks]


@pytest.mark.parametrize("prefix", [False, True])
def test_the_same_prompt_of_exactly_two_pages_twice(prefix: bool):
    """Case: full prefix hit. With pages of 4, the second runs its last page, of which it needs the last token."""
    requests = [Request(0, tuple(range(8)), 5), Request(1, tuple(range(8)), 5, arrival=9.0)]
    played, device = run(requests, Paged.of(20, 4, prefix=prefix))
    assert admissions(played) == [(0, 8), (4, 4) if prefix else (0, 8)]
    assert device.answer(0) == device.answer(1)


def test_a_hit_and_a_miss_after_a_forced_eviction():
    """Case: cache hit differs from miss. Eight pages of 2: a prompt of 4 pages, again, then one that needs all eight, then again."""
    prompt, other = (1, 2, 3, 4, 5, 6, 7), tuple(range(20, 35))
    requests = [Request(i, other if i == 2 else prompt, 2, arrival=10.0 * i) for i in range(4)]
    played, _ = run(requests, Paged.of(8, 2, prefix=True))
    assert admissions(played) == [(0, 7), (6, 1), (0, 15), (0, 7)]
    tree = played.state.workers[0].memory.prefix  # type: ignore[attr-defined]
    assert (tree.asked, tree.hit) == (7 + 7 + 15 + 7, 6) and tree.evicted == 8


def test_a_preempted_row_finds_what_it_has_run():
    """Two rows in a pool for one and a half; the second's pages were remembered when it had to go, and some are still there."""
    requests = [Request(0, (1, 2, 3, 4), 9), Request(1, (5, 6, 7, 8), 9)]
    again = {}
    for prefix in (False, True):
        played, _ = run(requests, Paged.of(9, 2, prefix=prefix), Continuous(Limits(preemptions=1)))
        assert any(plan.preempted == (1,) for _, plan in played.plans)
        again[prefix] = [row.count for _, plan in played.plans for row in plan.rows if plan.admitted == (1,)]
    assert again[True][-1] < again[False][-1]


@pytest.mark.parametrize("memory", [Paged.of(40, 4), Paged.of(40, 4, prefix=True), Slots.of(4, 30)])
def test_samples_differ_and_none_disturbs_another(memory):
    played, device = run([Request(0, tuple(range(10)), 8, samples=4)], memory)
    answers = {tuple(device.answer(id)) for id in range(4)}
    assert len(answers) == 4 and set(played.ended) == set(range(4))
    plans: list[Plan] = [plan for _, plan in played.plans]
    assert sum(plan.tokens for plan in plans) == 10 + 3 + 4 * 7, (
        "the prompt is run once, its last token once more for each other sample"
    )


LINK = Link(token_bytes=1, bandwidth=1e9, latency=0.0)
POLICIES = [
    (Static(Limits(rows=64)), 1),
    (Dynamic(Limits(rows=64)), 1),
    (Continuous(Limits(rows=64)), 1),
    (Continuous(Limits(rows=64, prefill_tokens=100, ahead=2)), 1),
    (Chunked(Limits(rows=64, ahead=1), 64), 1),
    (Chunked(Limits(rows=64), 1000), 1),
    (Disaggregated(LINK, Limits(rows=64), budget=1000), 2),
]


@pytest.mark.parametrize(("policy", "workers"), POLICIES)
def test_a_burst_runs_what_it_shares_once(policy: Policy, workers: int):
    """64 prompts that come together, each 512 tokens that all begin with and 8 of its own: 512 + 64 * 8 tokens are run, not 33,280."""
    begin = tuple(range(512))
    requests = [Request(i, (*begin, *(1000 + 8 * i + j for j in range(8))), 1) for i in range(64)]
    memories = [Paged.of(64 * 33, 16, prefix=True) for _ in range(workers)]
    device = Device(MODEL, [16] * workers, drafts=0)
    played = play(policy, State.of(*memories), requests, run=device.run, watch=Accepting(device))
    assert all(device.answer(request.id) == MODEL.answer(request, 0) for request in requests)
    assert sum(plan.tokens for _, plan in played.plans) == 512 + 64 * 8


def test_the_same_prompt_64_times_at_once():
    """Of a prompt of three pages and one token the others run that token; of one of exactly three pages the last page, of which they
    need its last token."""
    for length, each in ((13, 1), (12, 4)):
        requests = [Request(i, tuple(range(length)), 2) for i in range(64)]
        played, _ = run(requests, Paged.of(300, 4, prefix=True), Continuous(Limits(rows=64)))
        first = played.plans[0][1]
        assert first.counts == (length, *[each] * 63)


def test_who_rides_on_a_row_that_is_cancelled_reads_what_was_promised():
    """The row that computes the beginning goes before its plan is known, and a third comes while the plan is under way."""
    begin = tuple(range(8))
    requests = [Request(0, (*begin, 50), 3), Request(1, (*begin, 51), 3), Request(2, (*begin, 52), 3, arrival=0.5)]
    device = Device(MODEL, [4], drafts=0)
    policy = Continuous(Limits(ahead=2))
    state = State.of(Paged.of(20, 4, prefix=True))
    played = play(policy, state, requests, lambda plan: 1.0, device.run, cancels=[(0.25, 0)], watch=Accepting(device))
    assert admissions(played) == [(0, 9), (8, 1), (8, 1)]
    assert [device.answer(id) for id in (1, 2)] == [MODEL.answer(requests[id], 0) for id in (1, 2)]
    assert set(played.ended) == {1, 2}
