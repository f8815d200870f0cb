"""Which ladder pads least. Oracles: every ladder, each priced by its own choice of programs; the plans themselves; hand arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.analytical.step import step_cost
from costmodel.hardware.chips import CHIPS
from jaxserve.bucketing import economics
from jaxserve.bucketing.demand import Demand, every_shape
from jaxserve.bucketing.economics import Choice, Economics
from jaxserve.predict.analytical import Analytical, Attention
from jaxserve.programs.buckets import Buckets
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

H100 = CHIPS["h100-sxm"]
some = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def plan(decodes: list[int], prompts: list[tuple[int, int]] = []) -> Plan:  # noqa: B006
    """Rows that decode at these contexts, and prompts of (start, count)."""
    rows = [(context - 1, 1) for context in decodes] + prompts
    starts, counts = zip(*rows, strict=True)
    return Plan(0, ids=tuple(range(len(rows))), starts=starts, counts=counts, draws=(1,) * len(rows))


def collected(plans: list[Plan], ladder: Buckets, attention: Attention = "blockwise", model: str = "llama-3-8b") -> Demand:
    demand = Demand(Analytical(model, H100, ladder=ladder, attention=attention))
    for each in plans:
        demand(each)
    return demand


def all_ladders(every: Buckets, widths: list[int]) -> Iterator[Buckets]:
    def subsets(largest: int) -> list[tuple[int, ...]]:
        return [(*some, largest) for k in range(largest) for some in itertools.combinations(range(1, largest), k)]

    rows, pieces, widest = every.batches[-1], every.chunk[0], every.widths[-1]
    for tables in [(*s, widest) for k in range(len(widths) + 1) for s in itertools.combinations(widths, k)]:
        for batches, prefills in itertools.product(subsets(rows), subsets(pieces)):
            for mixed in subsets(rows) if every.mixed else [()]:
                yield Buckets(batches, tables, every.chunk, every.page, prefills[:-1], mixed)


def cheapest(prices: list[Choice], programs: int) -> float:
    return min(choice.seconds for choice in prices if choice.programs <= programs)


contexts = st.lists(st.integers(1, 90), min_size=1, max_size=4)
prompts = st.lists(st.tuples(st.integers(0, 40), st.integers(2, 50)), min_size=1, max_size=2)
steps = st.lists(st.builds(plan, contexts) | st.builds(plan, contexts, prompts), min_size=1, max_size=12)


@settings(some, max_examples=12)
@given(plans=steps, together=st.booleans(), model=st.sampled_from(["llama-3-8b", "mixtral-8x7b"]))
def test_no_ladder_of_as_many_programs_costs_less(plans: list[Plan], together: bool, model: str):
    """Decodes of up to 4 rows, prefills of up to 3x16: all 32 or 256 ladders."""
    every = every_shape(4, (3, 16), 4, (64,), together=together)
    found = Economics(collected(plans, every, model=model))
    prices = [found.of(ladder) for ladder in all_ladders(found.every, [])]
    for programs in range(3, 9):
        best, usual = found.best(programs), found.powers(programs)
        assert best.exact and best.programs <= programs and usual.programs <= programs
        assert best.seconds == pytest.approx(cheapest(prices, programs), rel=1e-9)
        assert best.seconds == pytest.approx(found.of(best.ladder).seconds, rel=1e-9)
        assert found.live <= found.of(every).seconds * (1 + 1e-9) and best.seconds <= usual.seconds * (1 + 1e-9)


@some
@given(plans=steps, sets=st.sampled_from([2000, 0]))
def test_widths_too(plans: list[Plan], sets: int):
    """Gather, with up to 3 tables narrower than the widest. Without all sets tried it may be beaten, says so, and hardly is."""
    every = every_shape(3, (2, 16), 16, tuple(range(1, 7)), together=False)
    plans = [Plan(0, ids=p.ids[:3], starts=p.starts[:3], counts=p.counts[:3], draws=p.draws[:3]) for p in plans]
    found = Economics(collected(plans, every, "gather"))
    prices = [found.of(ladder) for ladder in all_ladders(found.every, list(found.shapes.widths[:-1]))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(economics, "_SETS", sets)
        for programs in (2, 4, 6, 9, 12):
            best, least = found.best(programs), cheapest(prices, programs)
            assert best.programs <= programs and best.seconds >= least * (1 - 1e-9)
            assert best.seconds == pytest.approx(found.of(best.ladder).seconds, rel=1e-9)
            assert best.seconds == pytest.approx(least, rel=1e-9) if best.exact else best.seconds <= least * 1.02
            assert best.exact == bool(sets or programs < 4 or len(found.shapes.widths) == 1)


@some
@given(plans=steps, together=st.booleans())
def test_plans_are_summed_up(plans: list[Plan], together: bool):
    """Of plans that memory bounds, which all of these are, the sum over means is the sum over plans."""
    every = every_shape(4, (3, 16), 4, (64,), together=together)
    demand, predictor = collected([], every), Analytical("llama-3-8b", H100, ladder=every)
    seconds = [demand(each) for each in plans]
    assert seconds == pytest.approx([predictor(each) for each in plans])
    found = Economics(demand)
    assert found.of(every).seconds == pytest.approx(sum(seconds), rel=1e-9)
    coarse = Buckets((4,), (64,), (3, 16), 4, (1,), (4,) if together else ())
    priced = Analytical("llama-3-8b", H100, ladder=coarse)
    assert found.of(coarse).seconds == pytest.approx(sum(priced(each) for each in plans), rel=1e-9)
    shares = found.shares(coarse)
    live = sum(each.tokens for each in plans)
    assert sum(share.tokens - share.padded for share in shares) == pytest.approx(live)
    assert sum(share.seconds - share.wasted for share in shares) == pytest.approx(found.live)


def test_shapes_bound_by_different_roofs_are_not_mixed():
    """A piece of 370 tokens is bound by memory at the start of a prompt and by arithmetic far into one."""
    every = every_shape(2, (1, 370), 16, (512,), together=False)
    plans = [plan([], [(0, 370)]), plan([], [(7800, 370)])]
    costs = [step_cost("llama-3-8b", kind="prefill", batch=1, context=start + 370, chunk=370, chip=H100) for start in (0, 7800)]
    assert [cost.bound() for cost in costs] == ["memory", "compute"]
    found = Economics(collected(plans, every))
    assert found.of(every).seconds == pytest.approx(sum(float(cost.seconds()) for cost in costs), rel=1e-9)


def test_what_a_padded_row_costs_by_hand():
    """100 steps of 3 rows at 500 tokens, on a program of 4: the model's own padding, 100 times; 0.2 MB of activations are moved a row."""
    found = Economics(collected([plan([500] * 3)] * 100, every_shape(4, (2, 16), 4, (256,), together=False)))
    cost = step_cost("llama-3-8b", contexts=np.array([500.0] * 3), padded_batch=4, chip=H100)
    live = step_cost("llama-3-8b", contexts=np.array([500.0] * 3), chip=H100)
    (share, *_) = found.shares(Buckets((4,), (256,), (2, 16), 4))
    assert (share.bucket.name, share.runs, share.tokens, share.padded) == ("decode 4", 100, 400, 100)
    assert share.seconds == pytest.approx(100 * float(cost.seconds()), rel=1e-9)
    assert share.wasted == pytest.approx(100 * float(cost.seconds() - live.seconds()), rel=1e-6)
    assert share.bytes == pytest.approx(100 * float(cost.bytes - live.bytes), rel=1e-6)
    best = found.best(3)
    assert best.ladder.batches == (3, 4) and best.seconds == pytest.approx(100 * float(live.seconds()), rel=1e-9)


def test_no_more_programs_than_are_of_use():
    """Only 3 of 4 rows were ever asked for, and no prompt: 12 programs are allowed and 3 are enough."""
    found = Economics(collected([plan([500] * 3)], every_shape(4, (2, 16), 4, (256,), together=False)))
    best = found.best(12)
    assert best.programs == 3 and best.ladder.batches == (3, 4) and best.ladder.chunk == (1, 16)


def test_blockwise_pays_nothing_for_a_wide_table():
    """The same seconds whatever the tables are, so one width is what is looked for."""
    plans = [plan([500, 20]), plan([90], [(0, 100)])]
    wide, narrow = (every_shape(4, (2, 16), 4, (width,), together=False) for width in (2048, 125))
    costs = [Economics(collected(plans, every)).best(6) for every in (wide, narrow)]
    assert costs[0].seconds == costs[1].seconds and [cost.ladder.widths for cost in costs] == [(2048,), (125,)]


def test_nothing_asked_for_is_refused():
    with pytest.raises(UserError, match="no request was served"):
        Economics(collected([], every_shape(4, (2, 16), 4, (64,), together=False)))


@pytest.mark.parametrize(("together", "least"), [(False, 2), (True, 3)])
def test_too_few_programs_are_refused(together: bool, least: int):
    found = Economics(collected([plan([5])], every_shape(4, (2, 16), 4, (64,), together=together)))
    assert found.best(least).programs == least
    with pytest.raises(UserError, match=f"programs: {least - 1} are too few; a ladder needs at least {least}"):
        found.best(least - 1)


def test_drafts_and_repeated_steps_are_not_collected():
    every = every_shape(4, (2, 16), 4, (64,), together=False)
    with pytest.raises(ValueError, match="repeats steps or verifies drafts"):
        collected([Plan(7, ids=(0,), starts=(3,), counts=(1,), draws=(2,), steps=2)], every)
