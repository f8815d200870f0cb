"""Which programs a plan runs in. That the engine's arrays hold what is said here, `test_prepare_inputs.py` checks token by token."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.kv.paged import Paged
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult

sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True).map(lambda found: tuple(sorted(found)))


@st.composite
def ladders(draw: st.DrawFn) -> Buckets:
    rows = draw(st.integers(1, 4))
    return Buckets(
        batches=tuple(sorted({*draw(sizes), 9})),
        widths=tuple(sorted({*draw(sizes), 16})),
        chunk=(rows, draw(st.integers(5, 8))),
        page=4,
        prefills=tuple(size for size in draw(sizes) if size < rows),
        mixed=draw(st.just(()) | sizes),
        drafts=3,
        steps=5,
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Decodes, or verified drafts, then prompts; or decodes several times."""
    rows = draw(st.lists(st.integers(0, 31), max_size=9))
    steps = draw(st.sampled_from([1, 1, 1, 2, 5])) if rows else 1
    drafts = draw(st.booleans()) and steps == 1
    decodes = [(start, 1 + (draw(st.integers(0, 3)) if drafts else 0)) for start in rows]
    lines = [(start, count, count if steps == 1 else steps) for start, count in decodes]
    if steps == 1:
        most = 9 - len(lines)
        prompts = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30), st.integers(0, 1)), max_size=min(most, 4)))
        # A prompt of one token is a decode to the programs, and the plan's rows are the batch's at most.
        lines += prompts or ([(0, 3, 1)] if not lines else [])
    starts, counts, draws = zip(*lines, strict=True)
    return Plan(0, ids=tuple(range(len(lines))), starts=starts, counts=counts, draws=draws, steps=steps)


def least(ladder: Buckets, longest: int, fits: Callable[[Bucket], bool]) -> Bucket | None:
    """Of all buckets that fit, with tables for so many tokens, the one with the fewest rows, then the narrowest table."""
    wide = [one for one in ladder.buckets() if fits(one) and one.width * ladder.page >= longest]
    return min(wide, key=lambda one: (one.shape, one.width), default=None)


@settings(max_examples=300, deadline=None)
@given(plan=plans(), ladder=ladders())
def test_each_token_once_in_the_least_programs(plan: Plan, ladder: Buckets):
    """Oracle: every bucket of the ladder is looked at, and every token of the plan is counted."""
    found, longest = dispatch(plan, ladder), max(map(sum, zip(plan.starts, plan.counts, strict=True))) + plan.steps - 1
    lines = list(zip(plan.starts, plan.counts, plan.draws, strict=True))
    decodes = [i for i, (_, count, draws) in enumerate(lines) if count == 1 or draws > 1]
    verify = any(count > 1 for i, (_, count, _) in enumerate(lines) if i in decodes)
    pieces = [(start, count) for start, count, draws in lines if count > 1 and draws <= 1]
    most = ladder.chunk[1]
    wanted = [(at, min(most, start + count - at)) for start, count in pieces for at in range(start, start + count, most)]
    ran = [piece for run in found for piece in run.pieces]
    assert [(piece.start, piece.tokens) for piece in ran] == wanted
    assert all(plan.starts[p.row] <= p.start < p.start + p.tokens <= plan.starts[p.row] + plan.counts[p.row] for p in ran)
    assert [list(run.rows) for run in found if run.rows] == (
        [decodes] if decodes else []
    )  # all at once, and in the first program
    left = len(wanted)
    for number, run in enumerate(found):
        assert run.bucket is not None and (number == 0 or not run.rows)
        if run.rows:
            assert list(run.starts) == [plan.starts[i] for i in decodes]
            assert list(run.counts or [1] * len(decodes)) == [plan.counts[i] for i in decodes]
        rows, query = len(run.rows), 1 + ladder.drafts if verify else 1
        kinds = 1 + bool(run.pieces) if run.rows else 1
        of = [one for one in ladder.buckets() if one.verify == (verify and rows > 0) and len(one.shape) == kinds]
        of = [one for one in of if one.shape[0][1] == (query if rows else most) and (one.steps > 1) == (plan.steps > 1)]
        of = [one for one in of if not rows or one.shape[0][0] >= rows]
        room = [one for one in of if not run.pieces or one.shape[-1][0] >= left]
        # Where no program takes all pieces that are left, the one that takes most of them does.
        best = room or [one for one in of if one.shape[-1][0] == max(other.shape[-1][0] for other in of)]
        assert run.bucket == least(ladder, longest, best.__contains__)
        if run.pieces:
            assert len(run.pieces) == min(left, run.bucket.shape[-1][0])
            left -= len(run.pieces)
    assert left == 0
    mixed = [one for one in ladder.buckets() if len(one.shape) == 2 and one.shape[0][0] >= len(decodes)]
    assert not (decodes and wanted and mixed) or found[0].pieces  # one program for both, where there is one


@settings(max_examples=100, deadline=None)
@given(plan=plans())
def test_without_a_ladder_one_program_runs_all(plan: Plan):
    (whole,) = dispatch(plan)
    assert whole.bucket is None and whole.steps == plan.steps
    assert sum(whole.counts or [1] * len(whole.starts)) + sum(piece.tokens for piece in whole.pieces) == plan.tokens


@given(ladders(), st.lists(st.integers(1, 14), min_size=1, max_size=9), st.integers(0, 4), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_no_row_runs_before_those_whose_pages_it_shares(ladder: Buckets, lengths: list[int], decoding: int, page: int):
    """Prompts that begin alike come together, while others decode; each program reads what it or an earlier one has written."""
    state = State.of(Paged.of(200, page, prefix=True))
    scheduler = Scheduler(Continuous(Limits(rows=9)), state)
    written: set[tuple[int, int]] = set()
    ids = itertools.count()

    def step() -> None:
        plan = scheduler.plan(0.0)
        assert plan is not None
        ran = []
        for run in dispatch(plan, ladder):
            rows = [(row, plan.starts[row], plan.counts[row]) for row in run.rows] + [
                (p.row, p.start, p.tokens) for p in run.pieces
            ]
            for row, start, tokens in rows:
                written.update((plan.tables[row][at // page], at % page) for at in range(start, start + tokens))
            for row, start, _ in rows:
                missing = [at for at in range(start) if (plan.tables[row][at // page], at % page) not in written]
                assert not missing, f"row {row} of {plan} reads positions {missing}, which nobody has written"
            ran += rows
        assert sum(tokens for _, _, tokens in ran) == plan.tokens
        scheduler.update(plan, StepResult(tuple((5,) * draws for draws in plan.draws)), 0.0)

    for number in range(decoding):
        scheduler.submit(Request(next(ids), (100 + number,), 10), 0.0)
    if decoding:
        step()
    for length in lengths[: 9 - decoding]:
        scheduler.submit(Request(next(ids), tuple(range(length)), 2), 0.0)
    step()


def test_the_last_token_of_a_prompt_waits_for_the_pages_that_it_reads():
    """A row of one token runs with those that decode, but where it was admitted beside prompts upon whose pages it may stand."""
    ladder = Buckets((4,), (8,), (2, 8), 4, mixed=(4,))
    plan = Plan(0, ids=(1, 2, 3), starts=(9, 0, 12), counts=(1, 30, 1), draws=(1, 1, 1), admitted=(2, 3))
    first, second, third = dispatch(plan, ladder)
    assert first.rows == [0] and [piece.row for piece in first.pieces] == [1, 1]
    assert [piece.row for run in (second, third) for piece in run.pieces] == [1, 1, 2]
    alone = Plan(0, ids=(1, 3), starts=(9, 12), counts=(1, 1), draws=(1, 1), admitted=(3,))
    assert [list(run.rows) for run in dispatch(alone, ladder)] == [[0, 1]]


@given(plans(), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_one_program_for_all_runs_every_token_as_a_row(plan: Plan, rows: int):
    """In the order of the plan, and as many at once as there are rows."""
    if plan.steps > 1:
        return
    ladder = Buckets((rows,), (16,), (rows, 1), 4)
    assert ladder.uniform and len(ladder.buckets()) == 1
    found = dispatch(plan, ladder)
    wanted = [
        (i, at)
        for i, (start, count) in enumerate(zip(plan.starts, plan.counts, strict=True))
        for at in range(start, start + count)
    ]
    assert [(piece.row, piece.start) for run in found for piece in run.pieces] == wanted
    assert {piece.tokens for run in found for piece in run.pieces} == {1}
    assert [len(run.pieces) for run in found[:-1]] == [rows] * (len(found) - 1)
    assert {run.bucket for run in found} == set(ladder.buckets()) and not any(run.rows for run in found)
