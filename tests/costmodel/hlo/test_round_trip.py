"""What is printed is read back. Oracle: a printer of instructions that knows nothing of the parser."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.hlo.module import Instruction, Shape, parse

NAMES = st.from_regex(r"[a-z_][a-z0-9_\-]{0,6}(\.[0-9a-z]{1,3}){0,2}", fullmatch=True)
ARRAYS = st.builds(
    Shape,
    st.sampled_from(["f32", "bf16", "s32", "pred", "u8", "f8e4m3fn", "c64"]),
    st.lists(st.integers(0, 99999), max_size=4).map(tuple),
    st.sampled_from(["", "1,0", "0:T(8,128)(2,1)", ":T(128)S(1)", "2,1,0:E(4)"]),
)
SHAPES = st.recursive(
    ARRAYS, lambda inner: st.lists(inner, max_size=7).map(lambda parts: Shape("tuple", parts=tuple(parts))), max_leaves=9
)
TEXTS = st.text(st.characters(codec="latin-1", exclude_categories=["Cc", "Cs"]), max_size=12)
VALUES = st.one_of(
    st.integers(-9, 99).map(str),
    st.sampled_from(
        ["{}", "{0,1}", "{{0,1},{1,0}}", "[2,4]<=[4,2]T(1,0)", "LT", "bf_io->bf", "0_992x1_1", '{"n":{"k":["}","]"]}}']
    ),
    TEXTS.map(lambda value: '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'),
)


def printed(shape):
    if shape.dtype == "tuple":
        return (
            "(" + ", ".join(f"/*index={k}*/{printed(p)}" if k % 5 == 4 else printed(p) for k, p in enumerate(shape.parts)) + ")"
        )
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]" + (f"{{{shape.layout}}}" if shape.layout else "")


@st.composite
def bodies(draw):
    """Instructions, each of earlier ones, and their text."""
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    found: list[Instruction] = []
    lines: list[str] = []
    for place, name in enumerate(names):
        opcode = draw(st.sampled_from(["parameter", "constant", "get-tuple-element", "add", "custom-call", "async-start"]))
        tuples = [each for each in found if each.shape.parts]
        if not place or (opcode == "get-tuple-element" and not tuples):
            opcode = "parameter"
        shape, index, literal, operands = draw(SHAPES), -1, "", tuple[str, ...]()
        if opcode == "parameter":
            index = sum(each.opcode == "parameter" for each in found)
        elif opcode == "constant":
            literal = draw(st.sampled_from(["-1", "{1, 2}", "{ { 1 }, { (1, 2) } }", "{...}", "nan"]))
        elif opcode == "get-tuple-element":
            source = draw(st.sampled_from(tuples))
            index = draw(st.integers(0, len(source.shape.parts) - 1))
            shape, operands = source.shape.parts[index], (source.name,)
        else:
            operands = tuple(draw(st.lists(st.sampled_from(names[:place]), max_size=7)))
        attributes = draw(
            st.dictionaries(st.sampled_from(["dimensions", "a.b", "x-y", "kind", "backend_config"]), VALUES, max_size=3)
        )
        if opcode == "get-tuple-element":
            attributes["index"] = str(index)
        op_name = draw(TEXTS)
        if op_name:
            escaped = op_name.replace("\\", "\\\\").replace('"', '\\"')
            escaped = "".join(c if c < "\x7f" else "".join(f"\\{byte:03o}" for byte in c.encode()) for c in escaped)
            attributes["metadata"] = f'{{op_type="t" op_name="{escaped}" source_line=3}}'
        root = place == len(names) - 1
        found.append(Instruction(name, opcode, shape, operands, attributes, op_name, literal, index, root))
        inner = literal or (str(index) if opcode == "parameter" else "")
        inner = inner or ", ".join(f"/*index={k}*/%{o}" if k % 5 == 4 else f"%{o}" for k, o in enumerate(operands))
        tail = "".join(f", {key}={value}" for key, value in attributes.items())
        lines.append(f"  {'ROOT ' if root else ''}%{name} = {printed(shape)} {opcode}({inner}){tail}")
    return found, "\n".join(lines)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(bodies())
def test_round_trip(body):
    expected, lines = body
    entry = parse(f"HloModule m\n\nENTRY %entry {{\n{lines}\n}}\n").entry
    assert list(entry.instructions.values()) == expected
