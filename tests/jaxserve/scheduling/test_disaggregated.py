"""Prefill and decode on workers of their own. Oracles: bytes and seconds of a transfer by hand; random workloads against the laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.admission import cancel, submit
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import HandOff, Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import update
from jaxserve.scheduling.transfer import Link
from models.errors import UserError
from tests.jaxserve.scheduling.clock import Played, one_token, play
from tests.jaxserve.scheduling.laws import obeys
from tests.jaxserve.scheduling.workloads import Workload, many, workloads

LINK = Link(token_bytes=100, bandwidth=1000.0, latency=0.5)  # a token takes 0.1 s


@pytest.mark.slow
@many
@given(load=workloads(ahead=False), prefill=st.integers(1, 2), decode=st.integers(1, 3), data=st.data())
def test_laws(load: Workload, prefill: int, decode: int, data: st.DataObject):
    link = Link(10, data.draw(st.sampled_from([5.0, 1e6])), data.draw(st.sampled_from([0.0, 0.5])))
    budget = data.draw(st.integers(1, 12))
    policy = Disaggregated(link, load.limits, prefill, budget, data.draw(st.sampled_from([0.0, 1.0, 4.0])), load.multi_step)
    obeys(policy, load, memories=prefill + decode)


def moves(played: Played) -> list[tuple[float, HandOff]]:
    return [(at, move) for at, plan in played.plans for move in plan.hand_offs]


def run(policy: Policy, requests: list[Request], workers: int = 2, *, prefix: bool = False) -> Played:
    return play(policy, State.of(*[Paged.of(60, 4, prefix=prefix) for _ in range(workers)]), requests)


def test_a_transfer_takes_its_latency_and_its_bytes_over_the_bandwidth():
    """A prompt of 10 tokens: 1000 B, 0.5 + 1 s. The first token is drawn by the prefill at 1 s, the second after the transfer."""
    played = run(Disaggregated(LINK), [Request(0, range(10), 3)])
    (at, move), *more = moves(played)
    assert not more and at == 1.0 and move == HandOff(0, 0, 1, ((0, 1, 2), (0, 1, 2)), 0, 10, 1000, 1.5)
    assert [(at, plan.worker, plan.ids, plan.starts) for at, plan in played.plans if plan.ids] == [
        (0.0, 0, (0,), (0,)),
        (2.5, 1, (0,), (10,)),
        (3.5, 1, (0,), (11,)),
    ]
    assert played.ended == {0: (4.5, "length")}


def test_transfers_out_of_a_worker_follow_one_another():
    """Two prompts of 10 are done at 1 s; each takes 1.5 s, so they arrive at 2.5 and 4 s. The prefill worker works on meanwhile."""
    played = run(
        Disaggregated(LINK), [Request(0, range(10), 2), Request(1, range(10), 2), Request(2, range(4), 1, arrival=1.2)]
    )
    assert [(at, move.id) for at, move in moves(played)] == [(1.0, 0), (1.0, 1)]
    assert [(at, plan.ids) for at, plan in played.plans if plan.worker == 1 and plan.ids] == [(2.5, (0,)), (4.0, (1,))]
    assert played.ended[2][0] == 2.2


def test_memory_stays_lent_on_both_sides_until_the_transfer_has_ended():
    policy = Disaggregated(LINK)
    state = submit(State.of(Paged.of(9, 4), Paged.of(9, 4)), Request(0, range(10), 3), policy.limits)
    plan, state = policy(state, 0.0)
    state, _ = update(state, plan, one_token(plan))
    plan, state = policy(state, 1.0)
    assert len(plan.hand_offs) == 1 and plan.wake == 2.5 and not plan.ids
    assert [worker.memory.in_use for worker in state.workers] == [3, 3]
    state = cancel(state, 0)
    assert [worker.memory.in_use for worker in state.workers] == [3, 3], "bytes are still on their way"
    plan, state = policy(state, 2.0)
    assert plan == Plan(state.steps, wake=2.5)
    plan, state = policy(state, 2.5)
    assert plan.idle and state.idle and [worker.memory.in_use for worker in state.workers] == [0, 0]


def test_what_a_decode_worker_knows_is_not_sent_again():
    """The second prompt begins with the first's 12 tokens; its decode worker has 3 pages of 4 of them, so 2 tokens of 14 are sent.

    Neither are they run again: the prefill worker knows them too.
    """
    prompts = [range(12), [*range(12), 77, 78]]
    requests = [Request(0, prompts[0], 3), Request(1, tuple(prompts[1]), 2, arrival=20.0)]
    played = run(Disaggregated(LINK), requests, prefix=True)
    assert [(move.start, move.stop, move.bytes, move.seconds) for _, move in moves(played)] == [
        (0, 12, 1200, 1.7),
        (12, 14, 200, 0.7),
    ]
    assert [(plan.starts, plan.counts) for _, plan in played.plans if plan.admitted] == [((0,), (12,)), ((12,), (2,))]


@pytest.mark.parametrize(("affinity", "target"), [(1.0, 1), (0.0, 2)])
def test_routing_weighs_what_must_be_sent_against_load(affinity: float, target: int):
    """Worker 1 knows 20 of a prompt's 22 tokens and holds about 12 of a row that still runs; worker 2 knows and holds none.

    By weight 1 that is 2 + 12 against 22 + 0, by weight 0 it is 12 against 0.
    """
    shared = tuple(range(20))
    requests = [Request(0, shared, 2), Request(1, (99,) * 4, 40, arrival=10.0), Request(2, (*shared, 7, 8), 2, arrival=20.0)]
    played = run(Disaggregated(LINK, affinity=affinity), requests, workers=3, prefix=True)
    assert [move.target for _, move in moves(played)] == [1, 1, target]


def test_load_is_spread_where_nothing_is_known():
    """The fourth goes where the fewest tokens are held: to the worker whose row has decoded for the shortest time."""
    requests = [Request(i, (i,) * 8, 30, arrival=5.0 * i) for i in range(4)]
    played = run(Disaggregated(LINK), requests, workers=4)
    assert [move.target for _, move in moves(played)] == [1, 2, 3, 3]


def test_a_full_decode_side_slows_prefill_down():
    """The decode worker holds one row at a time: the others wait on the prefill worker, with their memory, in the order of admission."""
    requests = [Request(i, range(4), 6) for i in range(3)]
    played = run(Disaggregated(LINK, Limits(rows=1)), requests)
    assert [move.id for _, move in moves(played)] == [0, 1, 2]
    assert [plan.ids for _, plan in played.plans if plan.worker == 0 and plan.ids] == [(0,), (1,), (2,)]
    times = [at for at, _ in moves(played)]
    ends = [played.ended[i][0] for i in range(3)]
    assert times[1] == ends[0] and times[2] == ends[1]


def test_rows_are_handed_over_in_the_order_of_admission_whichever_worker_has_them():
    """One row a worker. Row 0 decodes for long; row 1 waits on worker 1, so worker 0 takes row 2; when 0 has ended, 1 goes first."""
    requests = [Request(0, range(4), 9), Request(1, range(4), 2), Request(2, range(4), 2)]
    played = run(Disaggregated(LINK, Limits(rows=1), prefill=2), requests, workers=3)
    assert [(move.id, move.source) for _, move in moves(played)] == [(0, 0), (1, 1), (2, 0)]


def test_a_row_that_finds_no_room_is_not_overtaken_by_a_smaller_one():
    """Six pages of 4 on the decode worker. Row 0 holds three at first; row 1 needs five, row 2 two."""
    requests = [Request(0, range(8), 4), Request(1, range(16), 2), Request(2, range(4), 2)]
    played = play(Disaggregated(LINK), State.of(Paged.of(60, 4), Paged.of(6, 4)), requests)
    times = {move.id: at for at, move in moves(played)}
    assert times[0] == 1.0 and times[1] == played.ended[0][0] <= times[2]


def test_an_answer_of_one_token_never_moves():
    played = run(Disaggregated(LINK), [Request(0, range(10), 1)])
    assert not moves(played) and played.ended == {0: (1.0, "length")}


def test_whoever_loses_its_memory_runs_its_prompt_again_on_a_prefill_worker():
    """Two rows of 8 + 9 - 1 = 16 tokens in a decode pool of 24: the second is preempted there, and comes back over the link."""
    memories = Paged.of(20, 4), Paged.of(6, 4)
    played = play(Disaggregated(LINK), State.of(*memories), [Request(0, range(8), 9), Request(1, range(8), 9)])
    (plan,) = [plan for _, plan in played.plans if plan.preempted]
    assert (plan.worker, plan.preempted) == (1, (1,))
    again = [plan for _, plan in played.plans if plan.worker == 0 and plan.ids][-1]
    assert again.ids == (1,) and again.starts == (0,) and again.counts[0] > 8, "its answer so far is run with the prompt"
    assert set(played.ended) == {0, 1}


def test_samples_move_apart():
    """Contiguous memory: the second sample's slot is written by a copy, which has to be done before it can move."""
    played = play(Disaggregated(LINK), State.of(Slots.of(2, 20), Slots.of(2, 20)), [Request(0, range(6), 3, samples=2)])
    assert [(plan.ids, plan.copies) for _, plan in played.plans if plan.copies] == [((), ((0, 1),))]
    assert {move.id: (move.start, move.stop) for _, move in moves(played)} == {0: (0, 6), 1: (0, 5)}
    assert set(played.ended) == {0, 1}


def test_workers_take_turns_where_one_thread_runs_them_all():
    """Every plan is folded at once, so that both workers are always free: neither may starve the other."""
    policy = Disaggregated(Link(1, math.inf))
    state = State.of(Paged.of(900, 4), Paged.of(900, 4))
    for id in range(20):
        state = submit(state, Request(id, range(90), 9), policy.limits)
    turns = []
    for _ in range(12):
        plan, state = policy(state, 0.0)
        turns.append(plan.worker)
        state, _ = update(state, plan, one_token(plan))
    # 1800 prompt tokens are four prefill steps; the first rows that can decode are there once the first hand-over has ended.
    assert turns == [0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Disaggregated(LINK, Limits(ahead=1)), "ahead is 1; with several workers each runs one plan at a time"),
        (lambda: Disaggregated(LINK, prefill=0), "prefill, workers, is 0; it must be a whole number of at least 1"),
        (lambda: Disaggregated(LINK, budget=0), "tokens of a prefill step, is 0; it must be"),
        (lambda: Disaggregated(LINK, affinity=-1.0), "affinity is -1.0; it must be at least 0"),
        (lambda: Disaggregated(LINK)(State.of(Paged.of(1, 1)), 0.0), "1 workers leave none to decode beside 1 that prefill"),
        (lambda: Link(0, 1.0), "token_bytes is 0; it must be"),
        (lambda: Link(1, 0.0), "bandwidth is 0.0; it must be above 0, in B/s"),
        (lambda: Link(1, 1.0, math.nan), "latency is nan; it must be at least 0"),
        (lambda: State.of(Paged.of(1, 1), Paged.of(1, 1, prefix=True)), "give every worker a prefix cache, or none of them"),
    ],
)
def test_settings_that_make_no_sense(make, message: str):
    with pytest.raises(UserError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
