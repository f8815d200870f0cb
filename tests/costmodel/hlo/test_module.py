"""The parser of HLO text. Oracles: a module read by eye, XLA's own parser, and the law that no prefix of a program is a program."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.hlo.module import Shape, parse
from models.errors import UserError
from tests.costmodel.xla_oracle import xla_module, xla_print

# What a TPU program looks like: tables, tiles, memory spaces, index comments, nested attributes, JSON, escapes, execution threads.
TPU = """HloModule jit_step, is_scheduled=true, input_output_alias={ {1}: (2, {}, may-alias), {2,0}: (3, {1}, must-alias) }, \
entry_computation_layout={(bf16[8,4]{1,0:T(8,128)(2,1)}, s32[])->(f32[])}, num_partitions=8, \
frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=8]>}}
"""
TPU += r"""

FileNames
1 "a {strange, name.py"

FunctionNames
1 "<module>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=17 end_line=17 column=25 end_column=81}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%region.1 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[]{:T(128)} parameter(1)
  ROOT %sum = f32[]{:T(128)} add(%a, %b), metadata={op_name="jit(step)/layer0/norm \"x\"/params[\'w\']/\316\273"}
}

%async_computation (p: f32[8]) -> f32[8] {
  ROOT %p = f32[8]{0} parameter(0)
}, execution_thread="sparsecore"

ENTRY %main.3 (w: bf16[8,4], t: (s32[], /*index=1*/f32[8]), n: s32[2], m: (f32[], f32[])) -> (f32[], s32[]) {
  %w = bf16[8,4]{1,0:T(8,128)(2,1)S(1)} parameter(0), sharding={devices=[8,1]<=[8]}, frontend_attributes={k="v, {[(",j="2"}
  %t = (s32[]{:T(128)}, /*index=1*/f32[8]{0:T(256)}) parameter(1)
  %n = s32[2]{0} parameter(2)
  %m = (f32[], f32[]) parameter(3)
  %table = f32[2,2]{1,0} constant({ { 1, -2.5e-3 }, { nan, inf } })
  %one = s32[]{:T(128)S(6)} constant(1)
  %element = f32[8]{0:T(256)} get-tuple-element(%t), index=1, metadata={op_name="jit(step)/a"}
  %reduced = f32[]{:T(128)} reduce(%element, /*index=1*/%reduced.0), dimensions={0}, to_apply=%region.1
  ROOT %out = (f32[]{:T(128)}, s32[]{:T(128)S(6)}) tuple(%reduced, %one), backend_config={"a":{"b":["}",1]},"c":"(\"["}
}
"""
TPU = TPU.replace("  %reduced =", "  %reduced.0 = f32[] constant(0)\n  %reduced =")


def test_a_module_read_by_eye():
    module = parse(TPU)
    assert (module.name, module.partitions, module.entry.name) == ("jit_step", 8, "main.3")
    assert module.aliases == {(1,): (2, ()), (2, 0): (3, (1,))}
    assert list(module.computations) == ["region.1", "async_computation", "main.3"]
    entry = module.entry
    assert [parameter.name for parameter in entry.parameters] == ["w", "t", "n", "m"]
    weight = entry.instructions["w"]
    assert weight.shape == Shape("bf16", (8, 4), "1,0:T(8,128)(2,1)S(1)")
    assert (weight.shape.memory_space, weight.shape.elements, weight.shape.bytes, weight.index) == (1, 32, 64, 0)
    assert weight.attributes == {"sharding": "{devices=[8,1]<=[8]}", "frontend_attributes": '{k="v, {[(",j="2"}'}
    carried = entry.instructions["t"].shape
    assert [part.dims for part in carried.parts] == [(), (8,)]
    assert (carried.bytes, carried.elements) == (4 + 32, 9)
    element = entry.instructions["element"]
    assert (element.opcode, element.operands, element.index, element.op_name) == ("get-tuple-element", ("t",), 1, "jit(step)/a")
    assert entry.instructions["table"].literal == "{ { 1, -2.5e-3 }, { nan, inf } }"
    assert (entry.instructions["one"].literal, entry.instructions["one"].operands) == ("1", ())
    reduced = entry.instructions["reduced"]
    assert (reduced.operands, reduced.callees(), reduced.callees("body")) == (("element", "reduced.0"), ("region.1",), ())
    assert (entry.root.name, entry.root.root, entry.root.operands) == ("out", True, ("reduced", "one"))
    assert entry.root.attributes["backend_config"] == r'{"a":{"b":["}",1]},"c":"(\"["}'
    assert module.computations["region.1"].root.op_name == "jit(step)/layer0/norm \"x\"/params['w']/λ"
    assert [user.name for user in entry.users["element"]] == ["reduced"]
    assert entry.users["out"] == ()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[3,5]{1,0}", 60),
        ("pred[9]{0}", 9),
        ("c128[2]{0}", 32),
        ("f8e4m3fn[7]{0}", 7),
        ("s4[7]{0}", 7),  # a byte each
        ("s4[7]{0:E(4)}", 4),  # packed, rounded up
        ("f32[]", 4),
        ("f32[0,9]{1,0}", 0),
        ("token[]", 0),
        ("(bf16[3]{0}, (s32[], token[]))", 10),
        ("f32[<=9,2]{1,0}", 72),  # the bound is what is allocated
    ],
)
def test_bytes_of_shapes(text, size):
    assert parse(f"HloModule m\n\nENTRY %e {{\n  ROOT %p = {text} parameter(0)\n}}\n").entry.root.shape.bytes == size


def step(x, w, i):
    with jax.named_scope("größe"):
        scanned = jax.lax.scan(lambda c, wi: (jnp.tanh(c @ wi), c.sum()), x, w)
    branch = jax.lax.cond(i[0] > 3, jnp.exp, lambda z: z @ z.T @ z, x)
    return scanned, x[i], jnp.sort(x), branch, jnp.argmax(x) + jnp.arange(300.0).sum()


@pytest.fixture(scope="module")
def compiled():
    shapes = ((8, 16), jnp.float32), ((4, 16, 16), jnp.float32), ((3,), jnp.int32)
    return jax.jit(step).lower(*(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes)).compile()


@pytest.fixture(scope="module")
def text(compiled):
    return compiled.as_text()


def test_same_instructions_as_xlas_own_parser(text):
    ours = parse(text)
    theirs = xla_module(text).computations()
    assert [computation.name for computation in theirs] == list(ours.computations)
    for computation in theirs:
        operands = {each.name: tuple(operand.name for operand in each.operands()) for each in computation.instructions()}
        assert {name: each.operands for name, each in ours.computations[computation.name].instructions.items()} == operands
    scopes = {each.op_name.split("/")[1] for each in ours.entry.instructions.values() if "/" in each.op_name}
    assert "größe" in scopes


@pytest.mark.parametrize(
    "change",
    [
        {"print_operand_shape": True},
        {"print_percent": False},
        {"print_program_shape": False},
        {"print_large_constants": True},
        {"print_metadata": False},
        {"print_backend_config": False},
        {"include_layout_in_shapes": False},
    ],
    ids=str,
)
def test_other_prints_of_the_same_module(text, change):
    """XLA prints one module in several forms; all that keep what a ledger needs give the same instructions."""
    expected, found = parse(text), parse(xla_print(text, **change))
    for name, computation in expected.computations.items():
        other = found.computations[name].instructions
        assert {k: (v.opcode, v.operands, v.shape.dims) for k, v in computation.instructions.items()} == {
            k: (v.opcode, v.operands, v.shape.dims) for k, v in other.items()
        }


def test_no_prefix_is_a_program():
    """Every single cut of a small module is an error, that behind the entry's brace excepted."""
    whole = len(TPU.rstrip())
    for cut in range(whole):
        with pytest.raises(UserError):
            parse(TPU[:cut])
    parse(TPU[:whole])


@settings(max_examples=150, deadline=None)
@given(st.floats(0, 1))
def test_no_prefix_of_a_compiled_program_is_a_program(text, where):
    with pytest.raises(UserError, match=r"line \d+"):
        parse(text[: int(where * (len(text.rstrip()) - 1))])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damage_is_noticed_or_harmless(text, data):
    """Cut out any stretch, or put a stray character anywhere: an error of ours, or a module with as many instructions."""
    start = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 40))
    stray = data.draw(st.sampled_from(["", "{", "}", "(", ")", '"', ",", "=", "%", "\n", "x", "\\", "ROOT ", "/*"]))
    try:
        found = parse(text[:start] + stray + text[start + length :])
    except UserError:
        return
    lost = text[start : start + length].count(" = ")  # a whole line that nobody reads may go unnoticed
    count = sum(len(computation.instructions) for computation in parse(text).computations.values())
    assert sum(len(computation.instructions) for computation in found.computations.values()) >= count - lost


def test_large_constants():
    """A literal of 3,000 numbers, as XLA prints them when asked to, is one constant."""
    values = ", ".join(str(k) for k in range(3000))
    text = f"HloModule m\n\nENTRY %e {{\n  ROOT %n = s32[3000]{{0}} constant({{{values}}})\n}}\n"
    assert parse(text).entry.root.literal == f"{{{values}}}"
