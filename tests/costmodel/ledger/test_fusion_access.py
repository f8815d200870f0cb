"""What instructions touch of their operands: programs written by hand, whose traffic is arithmetic on their shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.ledger.ledger import ledger
from costmodel.ledger.operands import GATHER, LEFT_OUT, ON_HOST, OVERWRITE, UPDATE
from tests.costmodel.books import corrections, items, module, of_kind

ADD = """%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
"""
SET = """%set (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %b = f32[] parameter(1)
}
"""


def test_on_a_gpu_memory_space_1_is_main_memory():
    """Only a TPU's layouts have tiles; S(1) elsewhere is device memory registered for collectives. S(5) is the host's, everywhere."""
    lines = """  %x = f32[1024]{0SPACE} parameter(0)
  ROOT %y = f32[1024]{0} negate(%x)"""
    assert ledger(module(lines.replace("SPACE", ":S(1)"))).traffic.bytes == 8192
    on_host = ledger(module(lines.replace("SPACE", ":S(5)")))
    assert on_host.traffic.bytes == 4096
    assert corrections(on_host) == {ON_HOST: -4096}


def fused(body: str, operands: str, result: str, before: str = "", head: str = "", kind: str = "kLoop") -> str:
    """A program of one fusion. `operands` declares the entry's parameters, which the fusion takes in their order."""
    names = ", ".join(f"%{line.split('=')[0].strip().lstrip('%')}" for line in operands.splitlines())
    text = f"{before}\n%fused {{\n{body}\n}}\n"
    return module(f"{operands}\n  ROOT %fusion = {result} fusion({names}), kind={kind}, calls=%fused", text, head)


@given(
    rows=st.integers(1, 4000),
    more=st.integers(0, 100_000),
    steps=st.lists(st.sampled_from(["convert", "bitcast", "copy"]), max_size=3),
)
def test_rows_gathered_behind_conversions_do_not_depend_on_the_table(rows, more, steps):
    """`rows` rows of 32 bf16 out of a table of any height, in a fusion that converts or copies the table first, lazily."""
    table = rows + more
    lines, last, dtype = (
        [f"  %p0 = bf16[{table},32]{{1,0}} parameter(0)", f"  %p1 = s32[{rows},1]{{1,0}} parameter(1)"],
        "p0",
        "bf16",
    )
    for n, step in enumerate(steps):
        dtype = "f32" if step == "convert" else dtype
        lines.append(f"  %v{n} = {dtype}[{table},32]{{1,0}} {step}(%{last})")
        last = f"v{n}"
    lines.append(
        f"  ROOT %g = {dtype}[{rows},32]{{1,0}} gather(%{last}, %p1), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,32}"
    )
    operands = f"  %table = bf16[{table},32]{{1,0}} parameter(0)\n  %rows = s32[{rows},1]{{1,0}} parameter(1)"
    book = ledger(fused("\n".join(lines), operands, f"{dtype}[{rows},32]{{1,0}}"))
    width = 4 if dtype == "f32" else 2
    assert book.traffic.bytes == rows * 32 * 2 + rows * 4 + rows * 32 * width
    assert corrections(book) == ({GATHER: -more * 64} if more else {})


def test_a_slice_in_an_inner_fusion_moves_the_slice():
    """One layer of 64 KiB out of a stack of 8, sliced in a fusion within the fusion that multiplies: the layer is read."""
    before = """%inner {
  %p0 = f32[8,128,128]{2,1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %layer = f32[1,128,128]{2,1,0} dynamic-slice(%p0, %p1, %zero, %zero), dynamic_slice_sizes={1,128,128}
  ROOT %w = f32[128,128]{1,0} bitcast(%layer)
}
"""
    body = """  %p0 = f32[8,128,128]{2,1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %p2 = f32[4,128]{1,0} parameter(2)
  %w = f32[128,128]{1,0} fusion(%p0, %p1), kind=kLoop, calls=%inner
  ROOT %y = f32[4,128]{1,0} dot(%p2, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    operands = "  %stack = f32[8,128,128]{2,1,0} parameter(0)\n  %i = s32[] parameter(1)\n  %x = f32[4,128]{1,0} parameter(2)"
    book = ledger(fused(body, operands, "f32[4,128]{1,0}", before))
    assert of_kind(book, "weights") == {("in place", "read"): 4 * (128 * 128 + 4 * 128)}


@pytest.mark.parametrize(("applied", "read"), [("set", 0), ("add", 1)])
def test_a_fused_scatter_writes_its_updates(applied, read):
    """3 rows of 64 f32 into a donated pool of 1000: they are written, and what they are added to is read; XLA charges the pool twice."""
    body = f"""  %p0 = f32[1000,64]{{1,0}} parameter(0)
  %p1 = s32[3,1]{{1,0}} parameter(1)
  %p2 = f32[3,64]{{1,0}} parameter(2)
  %twice = f32[3,64]{{1,0}} add(%p2, %p2)
  ROOT %s = f32[1000,64]{{1,0}} scatter(%p0, %p1, %twice), update_window_dims={{1}}, inserted_window_dims={{0}}, \
scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=%{applied}"""
    operands = (
        "  %pool = f32[1000,64]{1,0} parameter(0)\n  %at = s32[3,1]{1,0} parameter(1)\n  %rows = f32[3,64]{1,0} parameter(2)"
    )
    head = ", input_output_alias={ {}: (0, {}, may-alias) }"
    book = ledger(fused(body, operands, "f32[1000,64]{1,0}", SET + ADD, head))
    rows, pool = 4 * 3 * 64, 4 * 64000
    assert book.reported.bytes == 2 * pool + rows + 12
    assert of_kind(book, "kv") == {("updated", "write"): rows} | ({("in place", "read"): rows} if read else {})
    assert corrections(book) == {UPDATE: -2 * pool + rows + read * rows}
    assert of_kind(book, "weights") == {("in place", "read"): rows}


def test_a_scatter_by_itself_reads_what_it_overwrites_only_by_the_count():
    """XLA: the updates three times and the indices. Moved: the updates read and written, and the indices."""
    text = module(
        """  %pool = f32[1000,64]{1,0} parameter(0)
  %at = s32[3,1]{1,0} parameter(1)
  %rows = f32[3,64]{1,0} parameter(2)
  ROOT %s = f32[1000,64]{1,0} scatter(%pool, %at, %rows), update_window_dims={1}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%set""",
        SET,
    )
    book = ledger(text)
    assert book.reported.bytes == 3 * 768 + 12
    assert book.traffic.bytes == 2 * 768 + 12
    assert corrections(book) == {OVERWRITE: -768}


def test_an_update_behind_a_conversion_rewrites_the_whole_pool():
    """bf16 pool -> f32 -> update -> bf16 in one fusion is no update in place: all of it is read and written."""
    body = """  %p0 = bf16[1000,64]{1,0} parameter(0)
  %p1 = f32[1,64]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  %wide = f32[1000,64]{1,0} convert(%p0)
  %new = f32[1000,64]{1,0} dynamic-update-slice(%wide, %p1, %p2, %zero)
  ROOT %narrow = bf16[1000,64]{1,0} convert(%new)"""
    operands = "  %pool = bf16[1000,64]{1,0} parameter(0)\n  %row = f32[1,64]{1,0} parameter(1)\n  %i = s32[] parameter(2)"
    head = ", input_output_alias={ {}: (0, {}, may-alias) }"
    book = ledger(fused(body, operands, "bf16[1000,64]{1,0}", head=head))
    assert sum(of_kind(book, "kv").values()) == 2 * 2 * 64000


def test_an_update_of_a_fresh_buffer_writes_the_buffer():
    """Zeros and a row in one fusion: there is nothing to update in place, so all of it is written."""
    body = """  %p0 = f32[1,64]{1,0} parameter(0)
  %zero = f32[] constant(0)
  %at = s32[] constant(3)
  %zeros = f32[1000,64]{1,0} broadcast(%zero), dimensions={}
  ROOT %new = f32[1000,64]{1,0} dynamic-update-slice(%zeros, %p0, %at, %at)"""
    book = ledger(fused(body, "  %row = f32[1,64]{1,0} parameter(0)", "f32[1000,64]{1,0}"))
    assert sum(amount for (_, _, way), amount in items(book).items() if way == "write") == 4 * 64000


def test_several_updates_in_a_row_are_all_written():
    """Two rows put into one donated pool by one fusion, and its tuple's second result computed: each update is written."""
    body = """  %p0 = f32[1000,64]{1,0} parameter(0)
  %p1 = f32[1,64]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  %one = f32[1000,64]{1,0} dynamic-update-slice(%p0, %p1, %p2, %zero)
  %two = f32[1000,64]{1,0} dynamic-update-slice(%one, %p1, %zero, %zero)
  %n = f32[1,64]{1,0} negate(%p1)
  ROOT %both = (f32[1000,64]{1,0}, f32[1,64]{1,0}) tuple(%two, %n)"""
    operands = "  %pool = f32[1000,64]{1,0} parameter(0)\n  %row = f32[1,64]{1,0} parameter(1)\n  %i = s32[] parameter(2)"
    head = ", input_output_alias={ {0}: (0, {}, may-alias) }"
    book = ledger(fused(body, operands, "(f32[1000,64]{1,0}, f32[1,64]{1,0})", head=head))
    assert of_kind(book, "kv") == {("updated", "write"): 2 * 256}
    assert of_kind(book, "output") == {("activations", "write"): 256}


def test_a_slice_by_itself_is_as_xla_counts_it():
    """dynamic-slice of 1 of 8 layers: the layer read and written, and the indices; as XLA counts, but for all indices."""
    book = ledger(
        module(
            """  %stack = f32[8,128,128]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %layer = f32[1,128,128]{2,1,0} dynamic-slice(%stack, %i, %zero, %zero), dynamic_slice_sizes={1,128,128}"""
        )
    )
    assert of_kind(book, "weights") == {("in place", "read"): 65536, ("sliced", "write"): 65536}
    assert corrections(book) == {LEFT_OUT: 8}  # two more indices


@pytest.mark.parametrize(("layout", "moved"), [("0,1", 0), ("1,0", 2 * 4 * 64 * 32)])
def test_a_transpose_of_dimensions_and_layout_alike_moves_nothing(layout, moved):
    lines = "  %x = f32[64,32]{1,0} parameter(0)\n  ROOT %y = f32[32,64]{LAYOUT} transpose(%x), dimensions={1,0}"
    assert ledger(module(lines.replace("LAYOUT", layout))).traffic.bytes == moved
