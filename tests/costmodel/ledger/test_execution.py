"""How often instructions run: loops, counts that a caller gives, branches, calls. Oracles: one layer compiled by itself, XLA's totals,
hand-written modules, hand arithmetic."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from costmodel.hlo.cost import Cost
from costmodel.ledger.ledger import ledger
from models.errors import UserError
from tests.costmodel.hlo_programs import FUNCTIONS, STEPS, kept, program, totals


def compiled(function, *shapes):
    return jax.jit(function).lower(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).compile()


def test_a_scan_is_as_many_bodies():
    """The body of a loop compiled by itself is the oracle of a line within."""

    def body(x, w):
        return jnp.sin(x) @ w, None

    once = compiled(lambda x, w: body(x, w)[0], (64, 64), (64, 64)).cost_analysis()
    for length in (1, 3, 8):
        book = ledger(compiled(lambda x, w, n=length: lax.scan(lambda c, _: body(c, w), x, length=n)[0], (64, 64), (64, 64)))
        assert book.with_trips.transcendentals == length * once["transcendentals"]
        assert book.with_trips.flops == pytest.approx(length * once["flops"], rel=1e-3)


def test_nested_loops_multiply():
    """5 times 7 sines of 64 elements, and the additions."""

    def function(x):
        return lax.fori_loop(0, 5, lambda i, c: lax.fori_loop(0, 7, lambda j, d: jnp.sin(d) + 1, c), x)

    book = ledger(compiled(function, (64,)))
    assert (book.reported.transcendentals, book.with_trips.transcendentals) == (64, 5 * 7 * 64)
    assert sorted(book.trips.values()) == [5, 7]
    (sine,) = (line for line in book.lines if line.reported.transcendentals)
    assert [book.trips[name] for name in sine.loops] == [5, 7]
    assert sine.runs == 35


def live(x, n):
    with jax.named_scope("layer0"), jax.named_scope("attention"):
        x = lax.fori_loop(0, n[0], lambda i, c: jnp.sin(c), x)
    with jax.named_scope("layer1"), jax.named_scope("attention"):
        return lax.fori_loop(0, n[1], lambda i, c: jnp.cos(c) @ c, x)


@pytest.fixture(scope="module")
def data_bounded():
    return jax.jit(live).lower(jax.ShapeDtypeStruct((16, 16), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.int32)).compile()


def test_loops_bounded_by_data(data_bounded):
    """No count is never one: what XLA reports is there, the rest names the loops and the fix, and is a function of their counts."""
    book = ledger(data_bounded)
    assert book.reported.transcendentals == 2 * 256 == data_bounded.cost_analysis()["transcendentals"]
    assert book.trips == {}
    for ask in (lambda: book.with_trips, lambda: book.top(3)):
        with pytest.raises(
            UserError, match=r"while.*layer0/attention/while.*while.*layer1/attention/while.*pass trips=n"
        ) as error:
            ask()
        assert "\n" not in str(error.value)
    assert {line.runs for line in book.lines if line.reported.transcendentals} == {None}
    both = ledger(data_bounded, trips=6)
    assert both.with_trips.transcendentals == 6 * 512
    assert set(both.trips.values()) == {6}
    assert both.reported == book.reported
    assert all(loop.given for loop in both.loops.values())
    each = ledger(data_bounded, {"layer0/attention": 3, "layer1": 0})
    assert each.with_trips.transcendentals == 3 * 256
    assert sorted(each.trips.values()) == [0, 3]
    with pytest.raises(UserError, match=r"layer1"):
        _ = ledger(data_bounded, {"layer0": 3}).with_trips


def test_the_most_specific_key_wins(data_bounded):
    first, second = sorted(ledger(data_bounded).loops, key=lambda name: "layer1" in ledger(data_bounded).loops[name].op_name)
    book = ledger(data_bounded, {"attention": 2, "layer1/attention": 5})
    assert book.trips == {first: 2, second: 5}
    book = ledger(data_bounded, {second: 1, "layer1/attention": 5, "while": 4, "attention": 9})
    assert book.trips == {first: 4, second: 1}


@pytest.mark.parametrize(
    ("trips", "message"),
    [
        (-1, "trips is -1; give a whole number of at least 0"),
        (2.5, "trips of while.* is 2.5, which makes no whole number"),
        (True, "trips is True"),
        ("3", "trips is '3'"),
        (float("nan"), "trips is nan"),
        ({"layer0": -3}, "trips of 'layer0' is -3"),
        ({"layer7": 3}, "no loop is called 'layer7'; the loops of this program are: while.*layer0/attention"),
        ({"layer": 3}, "no loop is called 'layer'"),  # scopes are whole words
        ({"attention/layer0": 3}, "no loop is called"),
    ],
)
def test_bad_counts(data_bounded, trips, message):
    with pytest.raises(UserError, match=message):
        ledger(data_bounded, trips)


def test_a_count_that_the_program_has():
    """May be repeated, not contradicted; and one count for all loops bounded by data touches no other."""
    text = program("v5e_eight_layers", FUNCTIONS)
    (name,) = ledger(text).trips
    assert ledger(text, {name: 8}).trips == ledger(text, 3).trips == {name: 8}
    with pytest.raises(UserError, match=rf"{name} .*runs 8 times by the program; leave it out"):
        ledger(text, {name: 9})


@pytest.mark.parametrize("name", [f"{form}_blockwise_B4" for form in ("cpu_unroll", "h100_unroll", "v5e_scan", "v6e_scan")])
def test_steps_of_the_engine(name):
    """The scopes of the step's own counts find its loops, and a longer context costs more, by the same amount each."""
    text, given = program(name), totals(STEPS)[name]["trips"]
    costs = [ledger(text, {scope: count + more for scope, count in given.items()}).with_trips for more in (0, 1, 2)]
    assert costs[2] - costs[1] == costs[1] - costs[0]
    assert (costs[1] - costs[0]).bytes > 0
    assert sorted(kept(name).trips.values()) == ([2, 8] if "scan" in name else [8, 8])  # layers; blocks of 64 in 512 tokens
    with pytest.raises(UserError, match="data decide"):
        _ = ledger(text).with_trips


def test_mean_counts_of_a_loop_within_a_loop():
    """Layers with different windows: 4 and 5 pages are a mean of 4.5 over two layers; over one run there is no half."""
    text = program("v5e_scan_blockwise_B4")
    mean, four, five = (ledger(text, {"attention": count}).with_trips for count in (4.5, 4, 5))
    assert mean + mean == four + five
    with pytest.raises(UserError, match=r"is 4.25, which makes no whole number"):
        ledger(text, {"attention": 4.25})


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_linear_in_the_counts(data_bounded, one, two):
    """Exact integers: a million trips of one loop are a million times its body, whatever the other does."""
    base, first, second = (ledger(data_bounded, {"layer0": a, "layer1": b}).with_trips for a, b in ((0, 0), (one, 0), (0, two)))
    both = ledger(data_bounded, {"layer0": one, "layer1": two}).with_trips
    assert both + base == first + second


BRANCHES = """HloModule m

%few (a: f32[99]) -> f32[99] {
  %a = f32[99]{0} parameter(0)
  %b = f32[99]{0} add(%a, %a)
  %c = f32[99]{0} add(%b, %b)
  ROOT %d = f32[99]{0} add(%c, %c)
}

%many (a: f32[99]) -> f32[99] {
  %a = f32[99]{0} parameter(0)
  %b = f32[9]{0} slice(%a), slice={[0:9]}
  %e = f32[9]{0} exponential(%b)
  ROOT %c = f32[99]{0} broadcast(%a), dimensions={0}
}

%both (p: s32[], a: f32[99]) -> f32[99] {
  %p = s32[] parameter(0)
  %a = f32[99]{0} parameter(1)
  ROOT %r = f32[99]{0} conditional(%p, %a, %a), branch_computations={%few, %many}
}

ENTRY %e (p: s32[], a: f32[99]) -> f32[99] {
  %p = s32[] parameter(0)
  %a = f32[99]{0} parameter(1)
  %first = f32[99]{0} call(%p, %a), to_apply=%both
  ROOT %second = f32[99]{0} call(%p, %first), to_apply=%both
}
"""


def test_calls_and_branches():
    """By hand: `few` is 3 x 99 FLOP and 3 x 1188 B, `many` 9 exp; XLA takes the maximum of each field, and two calls make it twice."""
    book = ledger(BRANCHES)
    assert book.reported == book.with_trips == Cost(2 * 297, 2 * 3 * 3 * 4 * 99, 2 * 9)
    assert [line.name for line in book.lines if line.computation == "few"] == ["a", "b", "c", "d"] * 2
    assert not [line for line in book.lines if line.computation == "many"]
    assert [line.reported for line in book.lines if line.opcode == "conditional"] == [Cost(0, 0, 9)] * 2
    assert {line.reported for line in book.lines if line.opcode == "call"} == {Cost()}
