"""Bytes of single instructions and fusions. Oracle: XLA's HloCostAnalysis of the same text, equal to the last digit; hand arithmetic."""

import pytest

from costmodel.hlo.byte_rules import padded
from costmodel.hlo.module import parse
from tests.costmodel.hlo_texts import ADD, P9, PAIRS, PICK, ROWS, TAKE, TWO, F, M, S, counted, fused, text
from tests.costmodel.xla_oracle import xla_count

INNER = {
    "direct": "  ROOT %n = f32[9]{0} negate(%a)",
    "indirect": "  %m = f32[9]{0} negate(%a)\n  ROOT %n = f32[9]{0} exponential(%m)",
    "nothing": "",
}
OUTER = {
    "as root": ("f32[9]{0}", "  ROOT %x = f32[9]{0} fusion(%a), kind=kLoop, calls=%g"),
    "sliced": (
        "f32[3]{0}",
        "  %x = f32[9]{0} fusion(%a), kind=kLoop, calls=%g\n  %y = f32[3]{0} slice(%x), slice={[0:3]}\n"
        "  %z = f32[3]{0} slice(%x), slice={[3:6]}\n  ROOT %w = f32[3]{0} add(%y, %z)",
    ),
    "sliced at": (
        "f32[3]{0}",
        "  %i = s32[] constant(1)\n  %x = f32[9]{0} fusion(%a), kind=kLoop, calls=%g\n"
        "  ROOT %y = f32[3]{0} dynamic-slice(%x, %i), dynamic_slice_sizes={3}",
    ),
    "updated": (
        "f32[9]{0}",
        "  %i = s32[] constant(1)\n  %u = f32[3]{0} constant({1,2,3})\n  %x = f32[9]{0} fusion(%a), kind=kLoop, calls=%g\n"
        "  ROOT %y = f32[9]{0} dynamic-update-slice(%x, %u, %i)",
    ),
    "shared": (
        "f32[9]{0}",
        "  %x = f32[9]{0} fusion(%a), kind=kLoop, calls=%g\n  %z = f32[9]{0} exponential(%a)\n  ROOT %q = f32[9]{0} add(%x, %z)",
    ),
}
TEXTS = {
    "slice": text([F], "  ROOT %r = f32[4]{0} slice(%p0), slice={[0:4]}"),
    "dynamic slice": text([M, S, "s64[]"], "  ROOT %r = f32[4,8]{1,0} dynamic-slice(%p0, %p1, %p1), dynamic_slice_sizes={4,8}"),
    "update": text([M, "f32[4,8]{1,0}", S, S], f"  ROOT %r = {M} dynamic-update-slice(%p0, %p1, %p2, %p3)"),
    "gather": text([M, "s32[3,1]{1,0}"], f"  ROOT %r = f32[3,8]{{1,0}} gather(%p0, %p1), {TAKE}"),
    "scatter": text(
        [M, "s32[3,1]{1,0}", "f32[3,8]{1,0}"], f"  ROOT %r = {M} scatter(%p0, %p1, %p2), {ROWS}, to_apply=%add", ADD
    ),
    "concatenate": text([F, "f32[2]{0}"], "  ROOT %r = f32[11]{0} concatenate(%p0, %p1), dimensions={0}"),
    "transpose": text(["f32[2,3,4]{2,1,0}"], "  ROOT %r = f32[4,2,3]{2,1,0} transpose(%p0), dimensions={2,0,1}"),
    "transpose of nothing": text(["f32[2,3,4]{2,1,0}"], "  ROOT %r = f32[4,2,3]{0,2,1} transpose(%p0), dimensions={2,0,1}"),
    "all-gather pair": text(
        [F],
        f"  %s = ({F}, f32[18]{{0}}) all-gather-start(%p0){PAIRS}, dimensions={{0}}\n  ROOT %r = f32[18]{{0}} all-gather-done(%s)",
        head=TWO,
    ),
    "all-to-all": text([F, F], f"  ROOT %r = ({F}, {F}) all-to-all(%p0, %p1){PAIRS}", head=TWO),
    "permute pair": text(
        [F],
        f"  %s = ({F}, {F}, u32[], u32[]) collective-permute-start(%p0), source_target_pairs={{{{0,1}},{{1,0}}}}\n"
        f"  ROOT %r = {F} collective-permute-done(%s)",
        head=TWO,
    ),
    "copy pair": text(
        [F], f"  %s = (f32[9]{{0:S(1)}}, {F}, u32[]) copy-start(%p0)\n  ROOT %r = f32[9]{{0:S(1)}} copy-done(%s)"
    ),
    "asynchronous slice": text(
        [F],
        f"  %s = (({F}), f32[4]{{0}}, u32[]) slice-start(%p0), slice={{[0:4]}}\n"
        f"  %u = (({F}), f32[4]{{0}}, u32[]) slice-update(%s)\n  ROOT %r = f32[4]{{0}} slice-done(%u)",
    ),
    "asynchronous computation": text(
        [F],
        f"  %s = (({F}), {F}, u32[]) async-start(%p0), calls=%w\n  ROOT %r = {F} async-done(%s)",
        "%w (a: f32[9]) -> f32[9] {\n" + P9 + "  ROOT %e = f32[9]{0} exponential(%a)\n}\n\n",
    ),
    "asynchronous fusion": text(
        [F],
        f"  %s = (({F}), {F}, u32[]) fusion-start(%p0), kind=kLoop, calls=%w\n  ROOT %r = {F} fusion-done(%s)",
        "%w (a: f32[9]) -> f32[9] {\n" + P9 + "  ROOT %e = f32[9]{0} exponential(%a)\n}\n\n",
    ),
    "order": text(
        [F],
        f"  %t = token[] after-all()\n  %d = {F} add-dependency(%p0, %t)\n  %u = ({F}, token[]) tuple(%d, %t)\n"
        f"  ROOT %r = ({F}, token[]) opt-barrier(%u)",
    ),
    "send and receive": text(
        [F],
        f"  %t = token[] after-all()\n  %s = ({F}, u32[], token[]) send(%p0, %t), channel_id=1\n"
        f"  %d = token[] send-done(%s), channel_id=1\n  %v = ({F}, u32[], token[]) recv(%d), channel_id=2\n"
        f"  ROOT %r = ({F}, token[]) recv-done(%v), channel_id=2",
    ),
    "outfeed": text([F], f"  %t = token[] after-all()\n  ROOT %r = token[] outfeed(%p0, %t), outfeed_shape={F}"),
    "infeed": text([], f"  %t = token[] after-all()\n  ROOT %r = (({F}, s32[3]{{0}}), token[]) infeed(%t)"),
    "fused updates": fused(
        f"(a: {M[:8]}, b: f32[1,8], c: s32[]) -> (f32[9,8], f32[1,8])",
        f"  %a = {M} parameter(0)\n  %b = f32[1,8]{{1,0}} parameter(1)\n  %c = s32[] parameter(2)\n  %z = s32[] constant(0)\n"
        f"  %n = f32[1,8]{{1,0}} negate(%b)\n  %d = {M} dynamic-update-slice(%a, %n, %c, %z)\n"
        f"  ROOT %t = ({M}, f32[1,8]{{1,0}}) tuple(%d, %n)",
        [M, "f32[1,8]{1,0}", S],
        f"({M}, f32[1,8]{{1,0}})",
    ),
    "hidden update": fused(
        "(a: f32[9,8], b: f32[1,8], c: s32[]) -> f32[72]",
        f"  %a = {M} parameter(0)\n  %b = f32[1,8]{{1,0}} parameter(1)\n  %c = s32[] parameter(2)\n  %z = s32[] constant(0)\n"
        f"  %d = {M} dynamic-update-slice(%a, %b, %c, %z)\n  ROOT %q = f32[72]{{0}} bitcast(%d)",
        [M, "f32[1,8]{1,0}", S],
        "f32[72]{0}",
    ),
    "fused broadcasts": fused(
        "(a: f32[9]) -> f32[9,4]",
        P9
        + "  %c = f32[9,4]{1,0} broadcast(%a), dimensions={0}\n  %n = f32[9]{0} negate(%a)\n  %q = f32[9]{0} exponential(%a)\n"
        "  %s = f32[9]{0} add(%n, %q)\n  %d = f32[9,4]{1,0} broadcast(%s), dimensions={0}\n  %rs = f32[9,1]{1,0} reshape(%a)\n"
        "  ROOT %x = f32[9,4]{1,0} add(%c, %d)",
        [F],
        "f32[9,4]{1,0}",
    ),
    "fused tuple": fused(
        "(a: (f32[9], f32[30], s32[5])) -> f32[9]",
        "  %a = (f32[9]{0}, f32[30]{0}, s32[5]{0}) parameter(0)\n  %g = f32[9]{0} get-tuple-element(%a), index=0\n"
        "  %h = f32[30]{0} get-tuple-element(%a), index=1\n  %s = f32[9]{0} slice(%h), slice={[0:9]}\n"
        "  ROOT %r = f32[9]{0} add(%g, %s)",
        ["(f32[9]{0}, f32[30]{0}, s32[5]{0})"],
        F,
    ),
    "fused tuple in a tuple": fused(
        "(a: ((f32[9], f32[30]), f32[9])) -> f32[9]",
        "  %a = ((f32[9]{0}, f32[30]{0}), f32[9]{0}) parameter(0)\n"
        "  %g = (f32[9]{0}, f32[30]{0}) get-tuple-element(%a), index=0\n"
        "  %h = f32[9]{0} get-tuple-element(%g), index=0\n  ROOT %r = f32[9]{0} negate(%h)",
        ["((f32[9]{0}, f32[30]{0}), f32[9]{0})"],
        F,
    ),
    "fused reduce of two": fused(
        "(a: f32[9,8], b: s32[9,8]) -> (f32[9], s32[9])",
        f"  %a = {M} parameter(0)\n  %b = s32[9,8]{{1,0}} parameter(1)\n  %z = f32[] constant(0)\n  %y = s32[] constant(0)\n"
        "  ROOT %r = (f32[9]{0}, s32[9]{0}) reduce(%a, %b, %z, %y), dimensions={1}, to_apply=%pick",
        [M, "s32[9,8]{1,0}"],
        "(f32[9]{0}, s32[9]{0})",
        before=PICK,
    ),
    **{
        f"{kind} of a gather": fused(
            "(a: f32[9,8], b: s32[3,1]) -> f32[3,8]",
            f"  %a = {M} parameter(0)\n  %b = s32[3,1]{{1,0}} parameter(1)\n  %g = f32[3,8]{{1,0}} gather(%a, %b), {TAKE}\n"
            "  ROOT %n = f32[3,8]{1,0} negate(%g)",
            [M, "s32[3,1]{1,0}"],
            "f32[3,8]{1,0}",
            kind,
        )
        for kind in ("kCustom", "kLoop")
    },
    "kCustom of a scatter": fused(
        "(a: f32[9,8], b: s32[3,1], c: f32[3,8]) -> f32[9,8]",
        f"  %a = {M} parameter(0)\n  %b = s32[3,1]{{1,0}} parameter(1)\n  %c = f32[3,8]{{1,0}} parameter(2)\n"
        f"  ROOT %n = {M} scatter(%a, %b, %c), {ROWS}, to_apply=%add",
        [M, "s32[3,1]{1,0}", "f32[3,8]{1,0}"],
        M,
        "kCustom",
        ADD,
    ),
    **{
        f"fusion {inner} within a fusion, {outer}": fused(
            f"(a: f32[9]) -> {result[:6]}",
            P9 + body,
            [F],
            result,
            before="%g (a: f32[9]) -> f32[9] {\n"
            + (P9 + INNER[inner] if INNER[inner] else P9.replace("%a", "ROOT %a"))
            + "\n}\n\n",
        )
        for inner in INNER
        for outer, (result, body) in OUTER.items()
        if inner != "nothing" or outer == "as root"
    },
    **{
        f"element {kind}": text([shape], f"  ROOT %r = {shape} copy(%p0)")
        for kind, shape in (
            ("packed", "s4[7]{0:E(4)}"),
            ("unpacked", "s4[7]{0}"),
            ("fp8", "f8e4m3fn[9]{0}"),
            ("fp4", "f4e2m1fn[7]{0}"),
        )
    },
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    """One instruction or fusion, equal to the last digit."""
    assert counted(TEXTS[name]) == xla_count(TEXTS[name])


def test_padding_to_tiles():
    """By hand: [3,100] in tiles of 8 x 128 is 8 x 128; the minor dimension is the first of the layout; bf16 has half the bytes."""
    kept = {
        "f32[3,100]{1,0:T(8,128)}": 4096,
        "f32[3,100]{0,1:T(8,128)}": 4 * 104 * 128,
        "bf16[9,1,100]{2,1,0:T(2,128)(2,1)}": 4608,
    }
    kept |= {"f32[]{:T(128)}": 512, "s32[5]{0:T(128)S(1)}": 512, "f32[3,100]{1,0}": 1200, "f32[0,100]{1,0:T(8,128)}": 0}
    for shape, expected in kept.items():
        assert padded(parse(text([shape], f"  ROOT %r = {shape} copy(%p0)")).entry.root.shape) == expected
