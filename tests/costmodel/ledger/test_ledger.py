"""The ledger's lines and sums. Oracles: XLA's own totals of kept programs, hand arithmetic. Loops and calls are in test_execution."""

import jax
import jax.numpy as jnp
import pytest

from costmodel.hlo.cost import Cost, total
from costmodel.ledger.ledger import ledger
from models.errors import UserError
from tests.costmodel.hlo_programs import FUNCTIONS, cases, kept, program, totals


@pytest.mark.parametrize(("folder", "name"), cases())
def test_kept_programs(folder, name):
    """The lines sum to XLA's total: for a GPU that is not here, XLA itself says nothing, and the number says where it comes from.

    A TPU's compiler counts in whole tiles and by some rules of its own: within 1 % of its own count there.
    """
    found, known = kept(name, folder), totals(folder)[name]["generic_count"]
    own = totals(folder)[name]["compiled_cost_analysis"]
    everything = (each for computation in found.module.computations.values() for each in computation.instructions.values())
    calls = sum(each.opcode == "custom-call" for each in everything)
    assert found.reported.flops == pytest.approx(known["flops"] + calls, rel=1e-6)
    if name.startswith(("v4", "v5", "v6", "v7")):
        assert found.reported.bytes == pytest.approx(own["bytes accessed"], rel=0.01)
        assert found.reported.flops == pytest.approx(own["flops"], rel=1e-6)
    else:
        assert found.reported.bytes == pytest.approx(known["bytes accessed"] + calls, rel=1e-6)
    assert found.reported.transcendentals == pytest.approx(known["transcendentals"], rel=1e-6)
    assert found.source == f"compiled: text of {found.module.name}, counted by the rules of XLA's HloCostAnalysis"
    assert min(min(line.reported.flops, line.reported.bytes) for line in found.lines) >= 0


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_eight_layers_are_eight_times_one(target):
    """XLA counts the body of a scan once; with trips it is eight times the product of a layer, on every target."""
    book = ledger(program(f"{target}_eight_layers", FUNCTIONS))
    assert list(book.trips.values()) == [8]
    product = 2 * 4 * 256 * 256
    converted = 8 * 256 * 256 if target == "v5e" else 0  # a TPU makes bf16 of all weights before the loop, one FLOP each
    assert book.with_trips.flops == pytest.approx(8 * product + converted, rel=1e-4)  # the rest counts the loop
    assert book.with_trips.transcendentals == 8 * 4 * 256 == 8 * book.reported.transcendentals
    inside = [line for line in book.lines if line.loops and line.runs == 8]
    assert total(line.reported for line in inside).flops >= product
    assert {line.runs for line in book.lines} == {1, 8, 9}  # the condition finds the end too


def test_custom_calls_are_named_and_count_nothing():
    """bf16 (2,73)@(73,256) plus a bias on a GPU: never negative, never off by one, whatever the compiler makes of it."""
    book = ledger(program("h100_with_bias", FUNCTIONS))
    assert book.reported.flops >= 2 * 2 * 73 * 256
    assert book.reported.bytes >= 2 * (2 * 73 + 73 * 256 + 256 + 2 * 256)
    unknown = """HloModule m

ENTRY %e {
  %p = f32[8]{0} parameter(0)
  %n = f32[8]{0} negate(%p)
  ROOT %k = f32[8]{0} custom-call(%n), custom_call_target="somebody's kernel"
}
"""
    assert ledger(unknown).reported == Cost(8, 64)  # XLA says 7 and 63
    assert "somebody's kernel" in ledger(unknown).unpriced[0]


def test_top():
    """The most traffic over all runs first: a small line that runs eight times may stand before a large one."""
    book = ledger(program("cpu_eight_layers", FUNCTIONS))
    moved = [line.traffic.cost.bytes * (line.runs or 0) for line in book.top(len(book.lines))]
    assert moved == sorted(moved, reverse=True)
    assert sum(moved) == book.traffic.bytes
    assert book.top(1)[0].runs == 8


@pytest.mark.parametrize(
    "thing", [None, 3, b"HloModule m", jax.jit(jnp.sin).lower(1.0)], ids=["None", "int", "bytes", "Lowered"]
)
def test_other_things(thing):
    with pytest.raises(UserError, match=f"a {type(thing).__name__} is no compiled program; pass jax.jit"):
        ledger(thing)
