"""Trip counts. Oracles: Python's range, a loop that is stepped through, the layers of kept programs, XLA's `known_trip_count`."""

import re

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from costmodel.hlo.module import parse
from costmodel.hlo.trips import trip_counts
from tests.costmodel.hlo_programs import FUNCTIONS, program


def text_of(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().as_text()


def unsaid(text):
    """The text without XLA's counts."""
    return re.sub(r'"known_\w+":\{[^{}]*\},?', "", text)


@settings(max_examples=20, deadline=None)
@given(st.integers(-20, 20), st.integers(-20, 20), st.sampled_from([1, 2, 3, 7, -1, -3]), st.booleans())
def test_ranges(start, stop, step, strict):
    """Any while loop over a range: the range's length, whether or not XLA says something, which sometimes is one too few."""

    def function(x):
        def runs(state):
            i = state[0]
            return (i < stop if strict else i <= stop) if step > 0 else (i > stop if strict else i >= stop)

        return lax.while_loop(runs, lambda state: (state[0] + step, jnp.sin(state[1]) * 2), (start, x))[1]

    text = text_of(function, jnp.ones(100))
    end = stop if strict else stop + (1 if step > 0 else -1)
    for version in (text, unsaid(text)):
        for count in trip_counts(parse(version)).values():  # XLA unrolls a loop of few trips
            assert count == len(range(start, end, step))


def test_said_by_xla_alone():
    """Where the counter can't be followed, what XLA knows is taken."""
    text = loop(FROM_0_TO_6, LESS, "  %two = s32[] constant(2)\n  %j = s32[] multiply(%i, %two)")
    for config in ('{"known_trip_count":{"n":"12"},"a":[]}', '"{\\"known_trip_count\\":{\\"n\\":\\"12\\"}}"'):
        assert counted(text.replace("body=%body", f"body=%body, backend_config={config}")) == 12


def loop(start, condition, body, shape="s32[]", before=""):
    """A loop over (i, n, x); `condition` and `body` are instructions on %i and %n, the body's last one is %j."""
    carry = f"({shape}, {shape}, f32[9])"
    head = f"  %p = {carry} parameter(0)\n  %i = {shape} get-tuple-element(%p), index=0\n  %n = {shape} get-tuple-element(%p), index=1\n"
    return f"""HloModule m

{before}%condition (p: {carry}) -> pred[] {{
{head}{condition}
}}

%body (p: {carry}) -> {carry} {{
{head}  %x = f32[9] get-tuple-element(%p), index=2
{body}
  ROOT %t = {carry} tuple(%j, %n, %x)
}}

ENTRY %e (x: f32[9], data: {shape}) -> {carry} {{
  %x = f32[9] parameter(0)
  %data = {shape} parameter(1)
{start}
  %t = {carry} tuple(%start, %bound, %x)
  ROOT %w = {carry} while(%t), condition=%condition, body=%body
}}
"""


ONE = "  %one = s32[] constant(1)\n  %j = s32[] add(%i, %one)"
FROM_0_TO_6 = "  %start = s32[] constant(0)\n  %bound = s32[] constant(6)"
LESS = "  ROOT %r = pred[] compare(%i, %n), direction=LT"


def counted(text):
    (count,) = trip_counts(parse(text)).values()
    return count


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-9, 9),
    st.integers(-9, 9),
    st.integers(-3, 3),
    st.sampled_from(["LT", "LE", "GT", "GE", "EQ", "NE"]),
    st.booleans(),
)
def test_any_comparison(start, bound, step, direction, swapped):
    """Stepped through, up to a hundred trips, which none of these that end needs."""
    text = loop(
        f"  %start = s32[] constant({start})\n  %bound = s32[] constant({bound})",
        f"  ROOT %r = pred[] compare({'%n, %i' if swapped else '%i, %n'}), direction={direction}",
        f"  %s = s32[] constant({step})\n  %j = s32[] add(%s, %i)",
    )
    holds = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "EQ": int.__eq__, "NE": int.__ne__}[
        direction
    ]
    trips, i = 0, start
    while (holds(bound, i) if swapped else holds(i, bound)) and trips <= 100:
        trips, i = trips + 1, i + step
    assert counted(text) == (trips if trips <= 100 else None)


STEP = "%step (a: s32[], b: s32[]) -> s32[] {\n  %a = s32[] parameter(0)\n  %b = s32[] parameter(1)\n  ROOT %s = s32[] add(%a, %b)\n}\n\n"
TEST = (
    "%test (a: s32[], b: s32[]) -> pred[] {\n  %a = s32[] parameter(0)\n  %b = s32[] parameter(1)\n"
    "  %g = pred[] compare(%b, %a), direction=LE\n  ROOT %s = pred[] not(%g)\n}\n\n"
)
FUSED = "  %one = s32[] constant(1)\n  %j = s32[] fusion(%i, %one), kind=kLoop, calls=%step"
COPIED = (
    "  %s = (s32[], s32[], u32[]) copy-start(%i)\n  %d = s32[] copy-done(%s)\n  %b = s32[1] bitcast(%d)\n  %one = s32[1] constant({1})\n"
    "  %c = s32[1] add(%b, %one)\n  %j = s32[] reshape(%c)"
)
TO_12 = "  %c = s32[] constant(12)\n  ROOT %r = pred[] compare(%i, %c), direction=LT"
BY_N = "  %j = s32[] add(%i, %n)"
CALLED = FUSED.replace("fusion", "call").replace("calls", "to_apply")
FORMS = {
    "plain": (FROM_0_TO_6, LESS, ONE, 6),
    "downwards": (
        "  %start = s32[] constant(6)\n  %bound = s32[] constant(0)",
        "  ROOT %r = pred[] compare(%i, %n), direction=NE",
        "  %one = s32[] constant(1)\n  %j = s32[] subtract(%i, %one)",
        6,
    ),
    "bound in the condition": (
        FROM_0_TO_6,
        "  %c = s32[] constant(4)\n  ROOT %r = pred[] compare(%i, %c), direction=LT",
        ONE,
        4,
    ),
    "test of the next value": (
        FROM_0_TO_6,
        "  %c = s32[] constant(2)\n  %k = s32[] add(%i, %c)\n  ROOT %r = pred[] compare(%k, %n), direction=LT",
        ONE,
        4,
    ),
    "copied": (FROM_0_TO_6.replace("constant(0)", "constant(0)\n  %copied = s32[] copy(%start)"), LESS, COPIED, 6),
    "fused": (FROM_0_TO_6, "  ROOT %r = pred[] fusion(%i, %n), kind=kLoop, calls=%test", FUSED, 6),
    "called": (FROM_0_TO_6, "  ROOT %r = pred[] call(%i, %n), to_apply=%test", CALLED, 6),
    "step that is carried": (FROM_0_TO_6, TO_12, BY_N, 2),
    "whole numbers in floating point": (FROM_0_TO_6, LESS, ONE, 6),
    "halves": (FROM_0_TO_6, LESS, ONE.replace("constant(1)", "constant(0.5)"), None),
    "bound from data": ("  %start = s32[] constant(0)\n  %bound = s32[] copy(%data)", LESS, ONE, None),
    "start from data": ("  %start = s32[] copy(%data)\n  %bound = s32[] constant(6)", LESS, ONE, None),
    "step from data": (FROM_0_TO_6.replace("constant(6)", "copy(%data)"), TO_12, BY_N, None),
    "doubled": (FROM_0_TO_6, LESS, "  %j = s32[] add(%i, %i)", None),
    "multiplied": (FROM_0_TO_6, LESS, "  %two = s32[] constant(2)\n  %j = s32[] multiply(%i, %two)", None),
    "never moved": (FROM_0_TO_6, LESS, "  %j = s32[] copy(%i)", None),
    "flag from data": (FROM_0_TO_6, "  ROOT %r = pred[] constant(true)", ONE, None),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    start, condition, body, expected = FORMS[name]
    text = loop(start, condition, body, before=STEP + TEST)
    floating = name in ("whole numbers in floating point", "halves")
    assert counted(text.replace("s32[]", "f32[]") if floating else text) == expected


def test_a_bound_that_an_outer_loop_carries():
    """TPU programs hoist the constants of an inner loop into the carry of the outer one."""
    text = text_of(
        lambda x: lax.fori_loop(0, 5, lambda i, c: lax.fori_loop(0, 7, lambda j, d: jnp.sin(d) + 1, c), x), jnp.ones(64)
    )
    assert set(trip_counts(parse(unsaid(text))).values()) == set(trip_counts(parse(text)).values()) == {5, 7}
    inner = loop("", LESS, ONE).split("ENTRY")[0]
    carry = "(s32[], s32[], f32[9])"
    outer = f"""%outer_condition (p: {carry}) -> pred[] {{
  %p = {carry} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %c = s32[] constant(3)
  ROOT %r = pred[] compare(%i, %c), direction=LT
}}

%outer_body (p: {carry}) -> {carry} {{
  %p = {carry} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] get-tuple-element(%p), index=1
  %x = f32[9] get-tuple-element(%p), index=2
  %zero = s32[] constant(0)
  %t = {carry} tuple(%zero, %n, %x)
  %inner = {carry} while(%t), condition=%condition, body=%body
  %same = s32[] get-tuple-element(%inner), index=1
  %y = f32[9] get-tuple-element(%inner), index=2
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  ROOT %o = {carry} tuple(%j, CARRIED, %y)
}}

ENTRY %e (x: f32[9]) -> {carry} {{
  %x = f32[9] parameter(0)
  %zero = s32[] constant(0)
  %bound = s32[] constant(6)
  %t = {carry} tuple(%zero, %bound, %x)
  ROOT %w = {carry} while(%t), condition=%outer_condition, body=%outer_body
}}
"""
    assert trip_counts(parse(inner + outer.replace("CARRIED", "%n"))) == {"inner": 6, "w": 3}
    assert trip_counts(parse(inner + outer.replace("CARRIED", "%same"))) == {"inner": 6, "w": 3}
    assert trip_counts(parse(inner + outer.replace("CARRIED", "%j"))) == {"inner": None, "w": 3}  # another bound in each trip


def test_tpu_programs():
    """No count is said there: eight layers in a scan, two in a step; the loop over live pages is bounded by data."""
    assert list(trip_counts(parse(program("v5e_eight_layers", FUNCTIONS))).values()) == [8]
    assert "known_trip_count" not in program("v5e_eight_layers", FUNCTIONS)
    for chip in ("v5e", "v6e"):
        assert sorted(trip_counts(parse(program(f"{chip}_scan_blockwise_B4"))).values(), key=str) == [2, None]
        assert list(trip_counts(parse(program(f"{chip}_scan_gather_B4"))).values()) == [2]


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_loops_over_live_pages_are_data(target):
    """One for each of two layers, and nothing else that loops."""
    assert list(trip_counts(parse(program(f"{target}_unroll_blockwise_B4"))).values()) == [None, None]
