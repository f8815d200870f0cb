"""FLOPs of single instructions. Oracle: XLA's HloCostAnalysis of the same text, equal to the last digit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import UserError
from tests.costmodel.hlo_texts import ADD, GREATER, PAIRS, PICK, ROWS, TWO, F, M, S, counted, text
from tests.costmodel.xla_oracle import xla_count

TEXTS = {
    "sort": text([M], f"  ROOT %r = {M} sort(%p0), dimensions={{1}}, to_apply=%greater", GREATER),
    "sort of one": text(["f32[1]{0}"], "  ROOT %r = f32[1]{0} sort(%p0), dimensions={0}, to_apply=%greater", GREATER),
    "fft": text(["c64[3,4,6]{2,1,0}"], "  ROOT %r = c64[3,4,6]{2,1,0} fft(%p0), fft_type=FFT, fft_length={4,6}"),
    "cholesky": text(["f32[2,5,5]{2,1,0}"], "  ROOT %r = f32[2,5,5]{2,1,0} cholesky(%p0), lower=true"),
    "triangular solve": text(
        ["f32[5,5]{1,0}", "f32[5,3]{1,0}"],
        "  ROOT %r = f32[5,3]{1,0} triangular-solve(%p0, %p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
    ),
    "topk": text(["f32[3,50]{1,0}"], "  ROOT %r = (f32[3,4]{1,0}, s32[3,4]{1,0}) topk(%p0), k=4, largest=true"),
    "random": text(["u64[2]{0}"], "  ROOT %r = (u64[2]{0}, u32[7,9]{1,0}) rng-bit-generator(%p0), algorithm=rng_default"),
    "scatter of two": text(
        [M, "s32[9,8]{1,0}", "s32[3,1]{1,0}", "f32[3,8]{1,0}", "s32[3,8]{1,0}"],
        f"  ROOT %r = ({M}, s32[9,8]{{1,0}}) scatter(%p0, %p1, %p2, %p3, %p4), {ROWS}, to_apply=%pick",
        PICK,
    ),
    "reduce of two": text(
        [M, "s32[9,8]{1,0}", "f32[]", S],
        "  ROOT %r = (f32[9]{0}, s32[9]{0}) reduce(%p0, %p1, %p2, %p3), dimensions={1}, to_apply=%pick",
        PICK,
    ),
    "map": text([M, M], f"  ROOT %r = {M} map(%p0, %p1), dimensions={{0,1}}, to_apply=%add", ADD),
    "select and scatter": text(
        ["f32[8]{0}", "f32[4]{0}", "f32[]"],
        "  ROOT %r = f32[8]{0} select-and-scatter(%p0, %p1, %p2), window={size=2 stride=2}, select=%greater, scatter=%add",
        GREATER + ADD,
    ),
    "all-reduce of two": text(
        [F, "bf16[5]{0}"], f"  ROOT %r = ({F}, bf16[5]{{0}}) all-reduce(%p0, %p1), replica_groups={{}}, to_apply=%add", ADD
    ),
    "all-reduce pair": text(
        [F], f"  %s = {F} all-reduce-start(%p0), replica_groups={{}}, to_apply=%add\n  ROOT %r = {F} all-reduce-done(%s)", ADD
    ),
    "reduce-scatter": text(
        ["f32[18]{0}"], f"  ROOT %r = {F} reduce-scatter(%p0){PAIRS}, dimensions={{0}}, to_apply=%add", ADD, TWO
    ),
    "dead code": text([F], f"  %dead = {F} exponential(%p0)\n  ROOT %r = {F} negate(%p0)"),
    **{
        f"window {window}": text(
            [F, "f32[]"], f"  ROOT %r = {out} reduce-window(%p0, %p1), window={{{window}}}, to_apply=%add", ADD
        )
        for window, out in (
            ("size=9 pad=8_0", F),
            ("size=17 pad=8_8", F),
            ("size=3 stride=2", "f32[4]{0}"),
            ("size=5 pad=2_2", F),
        )
    },
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    """One instruction or fusion, equal to the last digit."""
    assert counted(TEXTS[name]) == xla_count(TEXTS[name])


def elementwise():
    unary = (
        "abs ceil cosine exponential floor log logistic negate rsqrt sign sine sqrt tan tanh cbrt erf acosh cosh log-plus-one"
    )
    for opcode in (*unary.split(), "exponential-minus-one", "round-nearest-even"):
        yield opcode, text([F], f"  ROOT %r = {F} {opcode}(%p0)")
    for opcode in "add atan2 divide maximum minimum multiply power remainder subtract".split():
        yield opcode, text([F, F], f"  ROOT %r = {F} {opcode}(%p0, %p1)")
    for opcode in "and or xor shift-left shift-right-arithmetic shift-right-logical".split():
        yield opcode, text(["s32[7]{0}"] * 2, f"  ROOT %r = s32[7]{{0}} {opcode}(%p0, %p1)")
    for opcode in "not popcnt count-leading-zeros".split():
        yield opcode, text(["s32[7]{0}"], f"  ROOT %r = s32[7]{{0}} {opcode}(%p0)")
    yield "complex", text([F, F], "  ROOT %r = c64[9]{0} complex(%p0, %p1)")
    yield "is-finite", text([F], "  ROOT %r = pred[9]{0} is-finite(%p0)")
    yield "bitcast-convert", text([F], "  ROOT %r = s32[9]{0} bitcast-convert(%p0)")
    yield "reduce-precision", text([F], f"  ROOT %r = {F} reduce-precision(%p0), exponent_bits=5, mantissa_bits=10")
    yield "clamp", text(["f32[]", F, "f32[]"], f"  ROOT %r = {F} clamp(%p0, %p1, %p2)")


ELEMENTWISE = list(elementwise())


@pytest.mark.parametrize(("opcode", "module"), ELEMENTWISE, ids=[opcode for opcode, _ in ELEMENTWISE])
def test_elementwise(opcode, module):
    assert counted(module) == xla_count(module)


AXES = st.tuples(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(-1, 8),
    st.integers(-1, 8),
    st.integers(1, 9),
    st.integers(1, 3),
).filter(lambda axis: (axis[0] - 1) * axis[5] + 1 + axis[3] + axis[4] >= (axis[1] - 1) * axis[6] + 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(AXES, min_size=1, max_size=2), st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1), (1, 4)]))
def test_convolutions(axes, groups):
    """Any stride, padding, dilation of input and kernel, and groups: only products that meet an element of the input count."""
    source, kernel, stride, low, high, base, wide = zip(*axes, strict=True)
    out = [((n - 1) * b + 1 + a + z - (k - 1) * d - 1) // s + 1 for n, k, s, a, z, b, d in axes]
    spatial, layout = "01"[: len(axes)], ",".join(str(axis) for axis in range(len(axes) + 1, -1, -1))
    per_axis = {"size": kernel, "stride": stride, "lhs_dilate": base, "rhs_dilate": wide}
    window = " ".join(f"{key}={'x'.join(map(str, values))}" for key, values in per_axis.items())
    window += " pad=" + "x".join(f"{a}_{z}" for a, z in zip(low, high, strict=True))

    def array(*dims):
        return f"f32[{','.join(map(str, dims))}]{{{layout}}}"

    module = text(
        [array(4, *source, 6), array(*kernel, 6 // groups[0], 12)],
        f"  ROOT %r = {array(4 // groups[1], *out, 12)} convolution(%p0, %p1), window={{{window}}}, "
        f"dim_labels=b{spatial}f_{spatial}io->b{spatial}f, feature_group_count={groups[0]}, batch_group_count={groups[1]}",
    )
    assert counted(module) == xla_count(module)


def test_unknown_opcode_is_an_error_and_not_free():
    with pytest.raises(UserError, match="'quantum-sort' of 'r' is not known"):
        counted(text([F], f"  ROOT %r = {F} quantum-sort(%p0)"))
