"""Which programs a plan runs in. Oracle: the engine's own packer, which makes the arrays that run."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.features import PLAIN
from jaxserve.ladder import Ladder
from jaxserve.packing import Packer
from jaxserve.runs import runs
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.plan import Plan
from jaxserve.seats import Seats

sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True).map(lambda found: tuple(sorted(found)))


@st.composite
def ladders(draw: st.DrawFn) -> Ladder:
    rows = draw(st.integers(1, 4))
    return Ladder(
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


@settings(max_examples=300, deadline=None)
@given(plan=plans(), ladder=ladders())
def test_as_the_packer_does(plan: Plan, ladder: Ladder):
    seats = Seats(64, 16, 99)
    for id in plan.ids:
        seats.take(id, range(60), SamplingParams(), ())
    drafts = {id: (1,) * (draws - 1) for id, draws in zip(plan.ids, plan.draws, strict=True) if draws > 1}
    calls = Packer(ladder, seats, PLAIN, 99).pack(plan, drafts, lambda id: None)
    found = runs(plan, ladder)
    assert [run.bucket for run in found] == [call.bucket for call in calls]
    for run, call in zip(found, calls, strict=True):
        lines = list(zip(run.starts, run.counts or [1] * len(run.starts), strict=True)) + [tuple(piece) for piece in run.pieces]
        packed = [line for part in call.parts for line in zip(part.starts.tolist(), part.counts.tolist(), strict=True)]
        assert lines == packed and run.steps == plan.steps
    whole = runs(plan)
    assert len(whole) == 1 and whole[0].bucket is None
    tokens = sum(whole[0].counts or [1] * len(whole[0].starts)) + sum(piece.tokens for piece in whole[0].pieces)
    assert tokens == plan.tokens == int(np.sum(plan.counts))
