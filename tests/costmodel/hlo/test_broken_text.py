"""Text that is no program. Oracle: what is wrong with each, and on which line, as written here."""

import jax
import jax.numpy as jnp
import pytest

from costmodel.hlo.count import count
from costmodel.hlo.module import parse
from costmodel.hlo.trips import trip_counts
from models.errors import UserError


def program(body, before="", head=""):
    return f"HloModule m{head}\n\n{before}ENTRY %e {{\n{body}\n}}\n"


P = "  %p = f32[8]{0} parameter(0)\n"
REGION = "%r (a: f32[]) -> f32[] {\n  ROOT %a = f32[] parameter(0)\n}\n\n"
BROKEN = {
    "empty": (" \n", "line 1: the text is empty"),
    "prose": ("hello", "line 1: .*does not begin with 'HloModule'"),
    "no name": ("HloModule \n", "line 1"),
    "no entry": (f"HloModule m\n\n{REGION}", "line 5: .*without an ENTRY"),
    "unknown dtype": (program("  ROOT %p = f31[8]{0} parameter(0)"), "line 4: element type 'f31'.*f32"),
    "dimension": (program("  ROOT %p = f32[?,8]{0} parameter(0)"), "line 4: the dimensions"),
    "huge dimension": (program(f"  ROOT %p = f32[{'9' * 5000}]{{0}} parameter(0)"), "line 4: the dimensions"),
    "no shape": (program("  ROOT %p = parameter(0)"), "line 4: expected a shape"),
    "operand": (program(P + "  ROOT %n = f32[8]{0} negate(%q)"), "line 5: operand 'q' of 'n' is not defined"),
    "later operand": (program(P + "  %a = f32[8]{0} negate(%b)\n  ROOT %b = f32[8]{0} negate(%p)"), "line 5: operand 'b'"),
    "computation": (program(P + "  ROOT %n = f32[8]{0} call(%p), to_apply=%r"), "line 5: computation 'r'"),
    "same name": (program(P + P.replace("%p", "ROOT %p")), "line 5: a second instruction 'p'"),
    "no root": (program(P.rstrip("\n")), "has not one ROOT"),
    "two roots": (program("  ROOT %a = f32[] constant(1)\n  ROOT %b = f32[] constant(1)"), "has not one ROOT"),
    "root of another shape": (
        program(P + "  ROOT %n = f32[] constant(1)").replace("%e", "%e (p: f32[8]) -> f32[8]"),
        "of its shape",
    ),
    "missing parameter": (
        program("  ROOT %n = f32[] constant(1)").replace("%e", "%e (p: f32[8]) -> f32[]"),
        "declares 1 parameters",
    ),
    "gap in parameters": (program("  ROOT %p = f32[8]{0} parameter(1)"), "has the numbers \\[1\\]"),
    "parameter without number": (program("  ROOT %p = f32[8]{0} parameter(x)"), "line 4: the number of a parameter is 'x'"),
    "element without index": (
        program("  %p = (f32[]) parameter(0)\n  ROOT %n = f32[] get-tuple-element(%p)"),
        "line 5: the index",
    ),
    "element out of range": (
        program("  %p = (f32[]) parameter(0)\n  ROOT %n = f32[] get-tuple-element(%p), index=1"),
        "line 5: get-tuple-element 'n' does not fit",
    ),
    "tuple of fewer": (program(P + "  ROOT %n = (f32[8], f32[8]) tuple(%p)"), "line 5: tuple 'n' does not fit"),
    "call with another shape": (
        program("  %p = f32[9]{0} parameter(0)\n  ROOT %n = f32[9]{0} call(%p), to_apply=%r", REGION),
        "line 9: call 'n' does not fit",
    ),
    "two modules": (program(P + "  ROOT %n = f32[] constant(1)") * 2, "line 7: a second module; .*one module at a time"),
    "two entries": (
        program(P + "  ROOT %n = f32[] constant(1)") + "\nENTRY %f {\n  ROOT %n = f32[] constant(1)\n}\n",
        "line 8: a second",
    ),
    "same computation": (program("  ROOT %n = f32[] constant(1)", REGION * 2), "line 7: a second computation 'r'"),
    "brace": (
        program(P + "  ROOT %n = f32[8]{0} negate(%p), metadata={a={b}"),
        "the bracket '{' on line 5 is not closed on that line",
    ),
    "crossed brackets": (program(P + "  ROOT %n = f32[8]{0} negate(%p), metadata={a=[b}]"), "line 5: .*never closed"),
    "quote": (program(P + '  ROOT %n = f32[8]{0} negate(%p), metadata={a="b}'), "line 5: a string is never closed"),
    "open comment": (program("/* " + P + "  ROOT %n = f32[8]{0} negate(/*index=0*/%p)"), "line 4"),
    "stray bracket": (program(P + "  ROOT %n = f32[8]{0} negate(%p), kind=a)"), "line 5: '\\)' without its partner"),
    "rubbish behind": (program(P + "  ROOT %n = f32[8]{0} negate(%p) nonsense"), "line 5: expected ', attribute"),
    "rubbish between": (
        program("  ROOT %n = f32[] constant(1)", "nonsense here\n\n"),
        "line 3: expected a computation, found 'nonsense",
    ),
    "elided operands": (program(P + "  ROOT %n = (f32[8], f32[8]) tuple(%p, ...(+1))"), "line 5"),
    "partitions": (program("  ROOT %n = f32[] constant(1)", head=", num_partitions=many"), "num_partitions.*'many'"),
    "deep": (program(f"  ROOT %n = {'(' * 2000}{')' * 2000} constant(1)"), "nested more than 100 deep"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_bad_text_is_a_teaching_error(name):
    text, message = BROKEN[name]
    with pytest.raises(UserError, match=message) as error:
        parse(text)
    assert "\n" not in str(error.value)


def test_stablehlo_is_recognised():
    lowered = jax.jit(lambda x: jnp.sin(x)).lower(1.0)
    with pytest.raises(UserError, match=r"StableHLO, the program before it is compiled; pass .*Compiled.as_text"):
        parse(lowered.as_text())


@pytest.mark.parametrize(
    "line",
    [
        "  ROOT %n = f32[8]{0} dot(%p, %p), lhs_contracting_dims={7}, rhs_contracting_dims={0}",
        "  ROOT %n = f32[8]{0} convolution(%p, %p), window={size=3}",
        "  ROOT %n = f32[8]{0} convolution(%p, %p), window={size=3}, dim_labels=nonsense",
        "  ROOT %n = f32[8]{0} reduce(%p, %p), dimensions={0}",
        "  ROOT %n = f32[8]{0} gather(%p)",
        "  ROOT %n = f32[8]{0} scatter()",
        "  ROOT %n = f32[8]{0} conditional(%p)",
        "  ROOT %n = f32[8]{0} slice-start(%p), slice={[0:8]}",
    ],
)
def test_what_an_opcode_needs(line):
    """Well-formed text that is no HLO all the same: an error that names the instruction, from whoever needs what isn't there."""
    with pytest.raises(UserError, match=r"'n'"):
        count(parse(program(P + line)))


@pytest.mark.parametrize(
    "line", ["while(%p)", "while(%p), condition=%r, body=%r", "fusion(%p), kind=kLoop", "copy()", "compare(%p, %p)"]
)
def test_what_a_loop_needs(line):
    with pytest.raises(UserError, match=r"'n'"):
        trip_counts(
            parse(program(f"{P}  %m = f32[8]{{0}} {line}\n  ROOT %o = f32[8]{{0}} negate(%m)".replace("%m", "%n"), REGION))
        )
