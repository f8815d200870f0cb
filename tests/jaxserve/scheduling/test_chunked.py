"""Chunked prefill. Oracle: steps of a small case written out by hand; random workloads against the laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.admission import submit
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult, update
from models.errors import UserError
from tests.jaxserve.scheduling.clock import play
from tests.jaxserve.scheduling.laws import obeys
from tests.jaxserve.scheduling.workloads import Workload, many, workloads


@pytest.mark.slow
@many
@given(load=workloads(), spare=st.integers(0, 8), piece=st.sampled_from([1, 1, 2, 3, 8]))
def test_laws(load: Workload, spare: int, piece: int):
    budget = load.limits.rows + spare
    obeys(Chunked(load.limits, budget, load.multi_step, piece), load, budget=budget)


def test_decodes_first_then_prompts_that_have_begun_then_new_ones():
    """Budget 8. Row: (id, start, count, tokens drawn). Row 0 draws 6 tokens, 1 has a prompt of 11, 2 of 4."""
    requests = [Request(0, range(3), 6), Request(1, range(11), 2, 0.5), Request(2, range(4), 2, 0.5)]
    plans = [plan for _, plan in play(Chunked(Limits(rows=8), 8), State.of(Paged.of(100, 4)), requests).plans]
    assert [list(zip(plan.ids, plan.starts, plan.counts, plan.draws, strict=True)) for plan in plans] == [
        [(0, 0, 3, 1)],
        [(0, 3, 1, 1), (1, 0, 7, 0)],
        [(0, 4, 1, 1), (1, 7, 4, 1), (2, 0, 3, 0)],
        [(0, 5, 1, 1), (1, 11, 1, 1), (2, 3, 1, 1)],
        [(0, 6, 1, 1), (2, 4, 1, 1)],
        [(0, 7, 1, 1)],
    ]


def test_prompts_are_cut_into_whole_pieces():
    """Budget 12, pieces of 4. Row 0 decodes, which leaves 11: two pieces. An end of 2 or 3 counts as 4, and a whole piece may follow it."""
    requests = [
        Request(0, range(3), 9),
        Request(1, range(10), 1, 0.5),
        Request(2, range(7), 1, 0.5),
        Request(3, range(1), 1, 0.5),
    ]
    plans = [plan for _, plan in play(Chunked(Limits(rows=8), 12, piece=4), State.of(Paged.of(100, 4)), requests).plans]
    assert [list(zip(plan.ids, plan.starts, plan.counts, strict=True)) for plan in plans[:4]] == [
        [(0, 0, 3)],
        [(0, 3, 1), (1, 0, 8)],
        [(0, 4, 1), (1, 8, 2), (2, 0, 4)],
        [(0, 5, 1), (2, 4, 3), (3, 0, 1)],
    ]


@given(
    prompts=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    piece=st.sampled_from([2, 4, 5]),
    spare=st.integers(5, 20),
)
def test_a_step_never_needs_more_pieces_than_its_budget_holds(prompts: list[int], piece: int, spare: int):
    policy = Chunked(Limits(rows=4), 4 + spare, piece=piece)
    requests = [Request(i, range(size), 3) for i, size in enumerate(prompts)]
    for _, plan in play(policy, State.of(Paged.of(100, 4)), requests).plans:
        parts = [count for start, count, prompt in zip(plan.starts, plan.counts, (prompts[id] for id in plan.ids), strict=True)
                 if start < prompt]  # fmt: skip
        decodes = len(plan.ids) - len(parts)
        assert decodes + sum(-(-count // piece) * piece for count in parts) <= policy.budget


def test_drafts_leave_every_row_a_token():
    """Three rows, budget 5: two drafts can be spared. Row 0 has three ready, row 1 one; row 2 is in its prompt."""
    policy, state = Chunked(Limits(rows=3), 5), State.of(Paged.of(100, 4))
    for id, prompt in enumerate([(1,), (1,), (1,) * 9]):
        state = submit(state, Request(id, prompt, 20), policy.limits)
    plan, state = policy(state, 0.0)
    assert plan.counts == (1, 1, 3) and plan.draws == (1, 1, 0)
    state, _ = update(state, plan, StepResult(((5,), (5,), ()), drafts={0: 3, 1: 1}))
    plan, state = policy(state, 0.0)
    assert plan.ids == (0, 1, 2) and plan.counts == (3, 1, 1) and plan.draws == (3, 1, 0)
    state, _ = update(state, plan, StepResult(((7, 8), (6,), ())))
    plan, state = policy(state, 0.0)
    assert plan.starts == (3, 2, 4) and plan.counts == (1, 1, 3), "two of three tokens were right; drafts are for one step only"


def test_a_piece_of_nothing_is_refused():
    with pytest.raises(UserError, match="piece, tokens, is 0; it must be a whole number of at least 1"):
        Chunked(piece=0)


def test_a_budget_for_fewer_tokens_than_rows_is_refused():
    with pytest.raises(
        UserError, match="a budget of 63 tokens a step is too small for 64 rows; raise it or lower the limit of rows"
    ):
        Chunked(budget=63)
