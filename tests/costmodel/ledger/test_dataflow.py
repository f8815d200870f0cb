"""Readers and makers across loops, calls and tuples, seen through the components that copies without a name get from them."""

from __future__ import annotations

from costmodel.hlo.module import parse
from costmodel.ledger.components import UNATTRIBUTED
from costmodel.ledger.dataflow import Dataflow
from costmodel.ledger.ledger import ledger


def entry(lines: str, before: str = "") -> str:
    return f"HloModule m, is_scheduled=true\n\n{before}\nENTRY %main {{\n{lines}\n}}\n"


def test_weights_cut_out_of_a_stack_work_for_the_product_in_the_loop_body():
    """The slice in a loop body carries only the name of the scan's own indexing; its reader is found behind tuples of the loop."""
    by = ledger(
        entry(
            """  %zero = s32[] constant(0)
  %w = f32[8,64,64]{2,1,0} parameter(0)
  %x = f32[4,64]{1,0} parameter(1)
  %carry = (s32[], f32[4,64]{1,0}, f32[8,64,64]{2,1,0}) tuple(%zero, %x, %w)
  %loop = (s32[], f32[4,64]{1,0}, f32[8,64,64]{2,1,0}) while(%carry), condition=%test, body=%body
  ROOT %y = f32[4,64]{1,0} get-tuple-element(%loop), index=1""",
            """%test {
  %p = (s32[], f32[4,64]{1,0}, f32[8,64,64]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(8)
  ROOT %more = pred[] compare(%i, %n), direction=LT
}
%body {
  %p = (s32[], f32[4,64]{1,0}, f32[8,64,64]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[4,64]{1,0} get-tuple-element(%p), index=1
  %stack = f32[8,64,64]{2,1,0} get-tuple-element(%p), index=2
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %layer = f32[1,64,64]{2,1,0} dynamic-slice(%stack, %i, %zero, %zero), dynamic_slice_sizes={1,64,64}, \
metadata={op_name="jit(f)/while/body/dynamic_slice"}
  %w = f32[64,64]{1,0} bitcast(%layer)
  %y = f32[4,64]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/down/dot_general"}
  %next = s32[] add(%i, %one)
  ROOT %carry = (s32[], f32[4,64]{1,0}, f32[8,64,64]{2,1,0}) tuple(%next, %y, %stack)
}
""",
        )
    ).by_component()
    assert by["down"].bytes >= 8 * 4 * (3 * 64 * 64 + 2 * 4 * 64)  # cut out, written, read again
    assert by.get(UNATTRIBUTED) is None or by[UNATTRIBUTED].bytes < 1000  # the counter


def test_what_a_loop_carries_out_works_for_who_reads_it_there():
    """An unnamed conversion at the end of a loop's body, read behind the loop only."""
    by = ledger(
        entry(
            """  %zero = s32[] constant(0)
  %x = bf16[64]{0} parameter(0)
  %carry = (s32[], bf16[64]{0}) tuple(%zero, %x)
  %loop = (s32[], bf16[64]{0}) while(%carry), condition=%test, body=%body
  %last = bf16[64]{0} get-tuple-element(%loop), index=1
  ROOT %y = bf16[64]{0} negate(%last), metadata={op_name="jit(f)/sample/neg"}""",
            """%test {
  %p = (s32[], bf16[64]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(8)
  ROOT %more = pred[] compare(%i, %n), direction=LT
}
%body {
  %p = (s32[], bf16[64]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %new = f32[64]{0} iota(), iota_dimension=0
  %narrow = bf16[64]{0} convert(%new)
  ROOT %carry = (s32[], bf16[64]{0}) tuple(%next, %narrow)
}
""",
        )
    ).by_component()
    assert by["sample"].bytes == 8 * (4 * 64 + 4 * 64 + 2 * 64) + 2 * 2 * 64
    assert by[UNATTRIBUTED].bytes < 200  # the counter


def test_outputs_and_readers():
    """A tuple of a copy that was started and waited for, and of a parameter: what leaves the program, where, and who reads what."""
    flow = Dataflow(
        parse(
            entry(
                """  %x = f32[64]{0} parameter(0)
  %n = f32[64]{0} negate(%x)
  %start = (f32[64]{0}, f32[64]{0}, u32[]) copy-start(%n)
  %done = f32[64]{0} copy-done(%start)
  ROOT %both = (f32[64]{0}, (f32[64]{0})) tuple(%done, %inner)""".replace("  ROOT", "  %inner = (f32[64]{0}) tuple(%x)\n  ROOT")
            )
        )
    )
    assert flow.outputs() == {("main", "start"): (0,), ("main", "x"): (1, 0)}
    assert [user.name for _, user in flow.readers(("main", "x", ()))] == ["n"]
    assert [user.name for _, user in flow.readers(("main", "start", ()))] == []
    assert [maker.name for _, maker in flow.makers(("main", "done", ()))] == ["start", "n"]
