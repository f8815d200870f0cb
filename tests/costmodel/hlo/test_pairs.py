"""Asynchronous pairs count once: copies and slices into on-chip memory, and collectives. Programs written by hand."""

from __future__ import annotations

from costmodel.ledger.ledger import ledger
from costmodel.ledger.operands import NEXT_STEP, ON_CHIP, PREFETCH
from tests.costmodel.books import MESH, SIZE, corrections, items, module, partitioned


def test_start_and_done_are_one_copy_and_on_chip_is_free():
    """A TPU prefetches 1 MiB of weights into VMEM, S(1), and multiplies from there into VMEM: 1 MiB is read and nothing else moves."""
    book = ledger(
        module(
            """  %x = f32[8,512]{1,0:T(8,128)S(1)} parameter(0)
  %w = f32[512,512]{1,0:T(8,128)} parameter(1)
  %start = (f32[512,512]{1,0:T(8,128)S(1)}, f32[512,512]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%w)
  %done = f32[512,512]{1,0:T(8,128)S(1)} copy-done(%start)
  ROOT %y = f32[8,512]{1,0:T(8,128)S(1)} dot(%x, %done), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
        )
    )
    assert items(book) == {("weights", "in place", "read"): 2**20}
    assert book.traffic.flops == 2 * 8 * 512 * 512
    assert set(corrections(book)) == {PREFETCH, ON_CHIP}
    assert corrections(book)[ON_CHIP] == -(2**20 + 2 * 4 * 8 * 512)


def test_what_is_prefetched_for_the_next_step_is_not_read_twice():
    """The same weights are prefetched for this step and, at the end, for the next: one read a step."""
    shape, copy = "f32[512,512]{1,0:T(8,128)", "f32[512,512]{1,0:T(8,128)S(1)}"
    book = ledger(
        module(
            f"""  %w = {shape}}} parameter(0)
  %start = ({copy}, {shape}}}, u32[]{{:S(2)}}) copy-start(%w), cross_program_prefetch_index=0
  %done = {copy} copy-done(%start)
  %y = {copy} negate(%done)
  %start.1 = ({copy}, {shape}}}, u32[]{{:S(2)}}) copy-start(%w)
  %done.1 = {copy} copy-done(%start.1)
  ROOT %result = ({copy}) tuple(%y)"""
        )
    )
    assert items(book) == {("weights", "in place", "read"): 2**20}
    assert NEXT_STEP in corrections(book)


def test_slices_fetched_apart_are_one_array_in_the_end():
    """Two slice-starts of half the weights each and ConcatBitcast, a view: the weights are read once."""
    half, tuple_ = (
        "f32[256,512]{1,0:T(8,128)S(1)}",
        "((f32[512,512]{1,0:T(8,128)}), f32[256,512]{1,0:T(8,128)S(1)}, s32[]{:S(2)})",
    )
    book = ledger(
        module(
            f"""  %w = f32[512,512]{{1,0:T(8,128)}} parameter(0)
  %start = {tuple_} slice-start(%w), slice={{[0:256], [0:512]}}
  %start.1 = {tuple_} slice-start(%w), slice={{[256:512], [0:512]}}
  %done = {half} slice-done(%start)
  %done.1 = {half} slice-done(%start.1)
  %all = f32[512,512]{{1,0:T(8,128)S(1)}} custom-call(%done, %done.1), custom_call_target="ConcatBitcast"
  ROOT %y = f32[512,512]{{1,0:T(8,128)}} negate(%all)"""
        )
    )
    assert items(book) == {("weights", "in place", "read"): 2**20, ("output", "activations", "write"): 2**20}


def test_start_and_done_count_once():
    """In the three forms that programs have: all-reduce-start of its own shape, tuples, and a start that wraps any operation."""
    text = partitioned(
        """  %p = f32[64,128]{1,0} parameter(0)
  %r = f32[64,128]{1,0} all-reduce-start(%p), replica_groups=[2,4]<=[8], to_apply=%sum
  %rd = f32[64,128]{1,0} all-reduce-done(%r)
  %g = (f32[64,128]{1,0}, f32[256,128]{1,0}) all-gather-start(%p), replica_groups=[2,4]<=[8], dimensions={0}
  %gd = f32[256,128]{1,0} all-gather-done(%g)
  %s = ((f32[64,128]{1,0}), f32[16,128]{1,0}) reduce-scatter-start(%p), replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%sum
  %sd = f32[16,128]{1,0} reduce-scatter-done(%s)
  %c = (f32[64,128]{1,0}, f32[64,128]{1,0}, u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1},{1,0}}
  %cd = f32[64,128]{1,0} collective-permute-done(%c)
  ROOT %all = (f32[64,128]{1,0}, f32[256,128]{1,0}, f32[16,128]{1,0}, f32[64,128]{1,0}) tuple(%rd, %gd, %sd, %cd)"""
    )
    book = ledger(text)
    assert sum(book.link_bytes.values()) == (1.5 + 3 + 0.75 + 1) * SIZE
    assert book.traffic.bytes == 0


def test_async_start_of_a_computation():
    """The long form: async-start calls a computation of one all-to-all."""
    text = partitioned(
        """  %p = f32[64,128]{1,0} parameter(0)
  %s = ((f32[64,128]{1,0}), f32[64,128]{1,0}, u32[]) async-start(%p), calls=%wrapped
  ROOT %d = f32[64,128]{1,0} async-done(%s)"""
    ).replace(
        "ENTRY",
        """%wrapped {
  %q = f32[64,128]{1,0} parameter(0)
  ROOT %a = f32[64,128]{1,0} all-to-all(%q), replica_groups=[2,4]<=[8], dimensions={0}
}

ENTRY""",
    )
    book = ledger(text, mesh=MESH)
    assert book.link_bytes == {"y": 0.75 * SIZE}
    assert book.traffic.bytes == 0
