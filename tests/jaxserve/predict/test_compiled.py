"""Step times from compiled programs. Oracles: a bilinear law, which interpolation must hit between the points; `step_cost`'s bytes."""

from __future__ import annotations

import itertools

import pytest

from costmodel.analytical.step import step_cost
from jaxserve.predict.compiled import Compiled, Size, compile_sizes
from jaxserve.scheduling.plan import Plan
from models.config.presets import PRESETS
from models.errors import UserError


def law(size: Size) -> float:
    """Weights, and for each row its work and its cache."""
    return 1.0 + 0.25 * size.rows * size.query + 0.5 * size.rows * size.query * size.context


def grid(queries=(1, 8, 64)) -> dict[Size, float]:
    sizes = [Size(rows, 1, context) for rows, context in itertools.product((1, 4, 16), (10, 100))]
    sizes += [Size(1, query, context) for query, context in itertools.product(queries, (100, 300)) if query > 1]
    return {size: law(size) for size in sizes}


def test_it_hits_what_lies_between():
    """3 rows of 20 to 40 tokens, 16 and 40 of some more; a piece of 20 tokens after 180. What is beyond the grid goes on as a line."""
    compiled = Compiled(grid())
    for starts in ((19, 29, 39), (49,) * 16, (199,) * 40):
        count = len(starts)
        plan = Plan(0, ids=tuple(range(count)), starts=starts, counts=(1,) * count, draws=(1,) * count)
        assert compiled(plan) == pytest.approx(law(Size(count, 1, sum(starts) // count + 1)))
    prompt = Plan(0, ids=(0,), starts=(180,), counts=(20,), draws=(0,))
    assert compiled(prompt) == pytest.approx(law(Size(1, 20, 200)))
    both = Plan(0, ids=(0, 1, 2), starts=(180, 19, 19), counts=(20, 1, 1), draws=(0, 1, 1))
    assert compiled(both) == pytest.approx(law(Size(1, 20, 200)) + law(Size(2, 1, 20)))
    twice = Plan(0, ids=(0, 1), starts=(19, 19), counts=(1, 1), draws=(2, 2), steps=2)
    assert compiled(twice) == pytest.approx(law(Size(2, 1, 20)) + law(Size(2, 1, 21)))


def test_what_was_not_compiled_is_said():
    points = grid()
    del points[Size(4, 1, 100)]
    with pytest.raises(UserError, match=r"decodes were compiled at sizes \[1, 4, 16\] .* but not at \(4, 100\)"):
        Compiled(points)
    with pytest.raises(UserError, match="give every pair of at least two of each"):
        Compiled({Size(1, 1, 10): 1.0, Size(1, 1, 20): 1.0})
    only = Compiled({size: took for size, took in grid().items() if size.query == 1})
    with pytest.raises(UserError, match="no prefill was compiled"):
        only(Plan(0, ids=(0,), starts=(0,), counts=(20,), draws=(0,)))
    with pytest.raises(UserError, match="verifies drafts"):
        only(Plan(0, ids=(0,), starts=(20,), counts=(3,), draws=(3,)))


@pytest.mark.slow
def test_programs_of_this_machine():
    """The tiny model on the host's compiler: a step moves at least what the analytical model says, and more rows cost more."""
    from costmodel.hardware.ceilings import ceilings

    config = PRESETS["tiny"]
    sizes = [Size(rows, 1, context) for rows, context in itertools.product((1, 8), (16, 64))]
    found = compile_sizes(config, "host", sizes)
    chip = ceilings().chip()
    for size, took in found.items():
        cost = step_cost(config, batch=size.rows, context=size.context, chip=chip, dtype="float32")
        assert took >= 0.9 * float(cost.bytes) / chip.bandwidth
    assert found[Size(8, 1, 64)] > found[Size(1, 1, 64)] and found[Size(8, 1, 64)] > found[Size(8, 1, 16)]
    assert Compiled(found)(Plan(0, ids=(0,), starts=(15,), counts=(1,), draws=(1,))) == pytest.approx(found[Size(1, 1, 16)])


def test_no_compiler():
    with pytest.raises(UserError, match="nothing here compiles for rtx-pro-6000"):
        compile_sizes(PRESETS["tiny"], "rtx-pro-6000", [Size(1, 1, 16)])
