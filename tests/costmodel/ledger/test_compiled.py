"""Totals of a ledger and their extrapolation. Oracles: the ledger's own sums, hand arithmetic, and a whole compile."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from costmodel.compile.program import StepProgram
from costmodel.hlo.cost import Cost
from costmodel.ledger.compiled import CompiledCost, extrapolate
from costmodel.ledger.ledger import ledger
from models.config.presets import PRESETS
from models.errors import UserError
from tests.compiling import UNOPTIMISED


def made_up(**changes: Any) -> CompiledCost:
    base = CompiledCost(Cost(), Cost(), Cost(), {}, {}, {}, {}, {}, ())
    return dataclasses.replace(base, **changes)


def compiled(layers: int, attention: str = "blockwise") -> CompiledCost:
    config = dataclasses.replace(PRESETS["tiny"], layers=layers, windows=(None,) * layers)
    program = StepProgram.on("cpu", config, ((4, 1),), 64, attention=attention)
    made = jax.jit(program, donate_argnums=program.donate).lower(*program.abstract_args()).compile(UNOPTIMISED)
    return CompiledCost.of(ledger(made, program.trips(64) or None))


@pytest.fixture(scope="module")
def two() -> CompiledCost:
    return compiled(2)


def test_the_books_balance(two: CompiledCost):
    """Corrections lead from XLA's bytes to those that move; items and components sum to the totals, to the last byte."""
    assert sum(two.items.values()) == two.traffic.bytes
    assert two.with_trips.bytes + sum(two.corrections.values()) == two.traffic.bytes
    assert sum(two.flops.values()) == two.traffic.flops == two.with_trips.flops
    assert two.with_trips.flops > two.reported.flops and two.unattributed < 0.01 and not two.unpriced


def test_a_loop_over_layers_is_counted_as_often_as_it_runs():
    """8 layers of one matmul: 8 x 2 x 4 x 32 x 32 FLOP, where XLA reports one layer's."""

    def layers(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (x @ w, None), x, weights)[0]

    lowered = jax.jit(layers).lower(jnp.zeros((4, 32)), jnp.zeros((8, 32, 32)))
    found = CompiledCost.of(ledger(lowered.compile()))
    assert found.traffic.flops == pytest.approx(8 * 2 * 4 * 32 * 32, rel=0.01)
    assert found.reported.flops == pytest.approx(2 * 4 * 32 * 32, rel=0.05)
    assert list(found.trips.values()) == [8]


def test_a_line_through_two_programs():
    """2 and 4 layers at 10 and 14: 10 + 2 a layer makes 22 at 8; what only one of them has starts from 0."""
    small = made_up(reported=Cost(10, 20, 1), items={("kv", "in place", "kv_read", "read"): 4.0}, unpriced=("a",))
    large = made_up(reported=Cost(14, 30, 1), items={("weights", "sliced", "qkv", "read"): 6.0}, unpriced=("b",))
    found = extrapolate(small, large, (2, 4, 8))
    assert found.reported == Cost(22, 50, 1) and found.basis == "extrapolated from 2 and 4 layers to 8"
    assert found.items == {("kv", "in place", "kv_read", "read"): -8.0, ("weights", "sliced", "qkv", "read"): 18.0}
    assert found.unpriced == ("a", "b") and set(found.confidence.values()) == {"bound"}
    for layers in ((4, 2, 8), (2, 2, 8), (2, 4, 3), (0, 4, 8)):
        with pytest.raises(UserError, match="they must ascend"):
            extrapolate(small, large, layers)


def test_words_of_confidence(two: CompiledCost):
    assert two.confidence == {"reported": "exact", "with_trips": "corrected", "traffic": "corrected"}
    cost = Cost(1, 1, 0)
    assert set(made_up(reported=cost, with_trips=cost, traffic=cost).confidence.values()) == {"exact"}


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["blockwise", "gather"])
def test_extrapolation_against_a_whole_compile(attention: str):
    """Of 8 layers. Layers are alike, so only what XLA fuses at the edges may differ."""
    few, whole = extrapolate(compiled(2, attention), compiled(4, attention), (2, 4, 8)), compiled(8, attention)
    for witness in ("reported", "with_trips", "traffic"):
        for unit in ("flops", "bytes"):
            assert getattr(getattr(few, witness), unit) == pytest.approx(getattr(getattr(whole, witness), unit), rel=2e-3)
