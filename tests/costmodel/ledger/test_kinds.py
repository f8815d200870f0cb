"""Kinds and roles of data: programs written by hand in which it is plain what each array is."""

from __future__ import annotations

import pytest

from costmodel.ledger.ledger import ledger
from tests.costmodel.books import items, module, of_kind

ADD = """%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
"""


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("f32[8,8]{1,0}", "weights"),
        ("bf16[8]{0}", "weights"),
        ("f8e4m3fn[8,8]{1,0}", "weights"),
        ("s8[8,8]{1,0}", "weights"),  # quantised
        ("s32[8]{0}", "argument"),
        ("pred[8]{0}", "argument"),
        ("f32[]", "argument"),
    ],
)
def test_parameters(shape, kind):
    """What is not state is weights if its type says so, and an argument otherwise; names are not looked at."""
    copy = f"  %cache = {shape} parameter(0)\n  ROOT %y = {shape} copy(%cache)"
    assert {of for of, _, _ in items(ledger(module(copy)))} == {kind}


def test_state_is_what_is_donated_or_returned_after_an_update():
    """The same parameter: donated; written to and returned; only written to, for a sum that leaves the program."""
    read = "  %pool = f32[100,64]{1,0} parameter(0)\n  %row = f32[1,64]{1,0} parameter(1)\n  %i = s32[] parameter(2)\n"
    update = read + "  ROOT %new = f32[100,64]{1,0} dynamic-update-slice(%pool, %row, %i, %i)"
    assert of_kind(ledger(module(update)), "kv") == {("updated", "write"): 256}
    donated = module(
        read + "  ROOT %same = f32[100,64]{1,0} copy(%pool)", head=", input_output_alias={ {}: (0, {}, may-alias) }"
    )
    assert of_kind(ledger(donated), "kv") == {("copied", "read"): 25600, ("copied", "write"): 25600}
    inner = update.replace("ROOT %new", "%new") + "\n  ROOT %y = f32[100,64]{1,0} negate(%new)"
    assert {kind for kind, _, _ in items(ledger(module(inner)))} == {"weights", "argument", "output"}


def test_forms_follow_the_data():
    """A layer cut from a stack, converted, and multiplied: in place, sliced, converted; of several forms in a row the last one counts."""
    book = ledger(
        module(
            """  %stack = bf16[8,64,64]{2,1,0} parameter(0)
  %x = f32[4,64]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %cut = bf16[1,64,64]{2,1,0} dynamic-slice(%stack, %i, %i, %i), dynamic_slice_sizes={1,64,64}
  %wide = f32[1,64,64]{2,1,0} convert(%cut)
  %w = f32[64,64]{1,0} bitcast(%wide)
  ROOT %y = f32[4,64]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
        )
    )
    half, full = 2 * 64 * 64, 4 * 64 * 64
    assert of_kind(book, "weights") == {
        ("in place", "read"): half + 4 * 4 * 64,
        ("sliced", "write"): half,
        ("sliced", "read"): half,
        ("converted", "write"): full,
        ("converted", "read"): full,
    }


def test_quantised_weights_that_are_multiplied_out_are_weights_converted():
    """s8 numbers times a scale for each column, written as bf16 and read again."""
    book = ledger(
        module(
            """  %q = s8[64,64]{1,0} parameter(0)
  %scale = bf16[64]{0} parameter(1)
  %fusion = bf16[64,64]{1,0} fusion(%q, %scale), kind=kLoop, calls=%fused
  ROOT %y = bf16[64,64]{1,0} negate(%fusion)""",
            """%fused {
  %p0 = s8[64,64]{1,0} parameter(0)
  %p1 = bf16[64]{0} parameter(1)
  %wide = bf16[64,64]{1,0} convert(%p0)
  %scales = bf16[64,64]{1,0} broadcast(%p1), dimensions={1}
  ROOT %w = bf16[64,64]{1,0} multiply(%wide, %scales)
}
""",
        )
    )
    assert of_kind(book, "weights") == {
        ("in place", "read"): 4096 + 128,
        ("converted", "write"): 8192,
        ("converted", "read"): 8192,
    }


def test_gathered_pages_stay_what_they_are_behind_a_mask():
    """Rows of a donated pool, those that are not seen blanked out, as bits: KV gathered into a copy, not something computed."""
    book = ledger(
        module(
            """  %pool = u16[100,64]{1,0} parameter(0)
  %at = s32[4,1]{1,0} parameter(1)
  %fusion = u16[4,64]{1,0} fusion(%pool, %at), kind=kLoop, calls=%fused
  %read = u16[4,64]{1,0} not(%fusion)
  ROOT %both = (u16[4,64]{1,0}, u16[100,64]{1,0}) tuple(%read, %pool)""",
            """%fused {
  %p0 = u16[100,64]{1,0} parameter(0)
  %p1 = s32[4,1]{1,0} parameter(1)
  %rows = u16[4,64]{1,0} gather(%p0, %p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, \
slice_sizes={1,64}
  %bits = u16[4]{0} convert(%p1)
  %mask = u16[4,64]{1,0} broadcast(%bits), dimensions={0}
  ROOT %seen = u16[4,64]{1,0} and(%rows, %mask)
}
""",
            ", input_output_alias={ {1}: (0, {}, may-alias) }",
        )
    )
    rows = 2 * 4 * 64
    assert of_kind(book, "kv") == {("in place", "read"): rows, ("gathered", "write"): rows, ("gathered", "read"): rows}


def test_partial_sums_and_logits_have_roles():
    """A product split in 4, whose parts are summed under the product's own name; and the head's result, read to sample."""
    book = ledger(
        module(
            """  %x = f32[4,8,16]{2,1,0} parameter(0)
  %w = f32[4,16,32]{2,1,0} parameter(1)
  %zero = f32[] constant(0)
  %parts = f32[4,8,32]{2,1,0} dot(%x, %w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_contracting_dims={1}, metadata={op_name="jit(f)/head/dot_general"}
  %logits = f32[8,32]{1,0} reduce(%parts, %zero), dimensions={0}, to_apply=%add, metadata={op_name="jit(f)/head/dot_general"}
  ROOT %top = f32[8]{0} reduce(%logits, %zero), dimensions={1}, to_apply=%add, metadata={op_name="jit(f)/sample/reduce_max"}""",
            ADD,
        )
    )
    computed = of_kind(book, "intermediate")
    assert {role for role, _ in computed} == {"partials", "logits"}
    assert computed["partials", "write"] == computed["partials", "read"] == 4 * 4 * 8 * 32
    assert computed["logits", "write"] == computed["logits", "read"] == 4 * 8 * 32
