"""Memory traffic: small programs compiled here, whose true traffic is a matter of arithmetic, and the kept programs (with HLO_PROGRAMS
foreign ones too), where the books must balance line by line. See `test_touched` for instructions one by one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from costmodel.hlo.cost import Cost
from costmodel.ledger.kinds import KINDS, ROLES
from costmodel.ledger.ledger import ledger
from costmodel.ledger.operands import BRANCHES, GATHER, REASONS
from costmodel.ledger.traffic import CONFIDENCE
from models.errors import UserError
from tests.costmodel.books import compiled, corrections, items, module, of_kind
from tests.costmodel.hlo_programs import cases, kept


def test_matmul_moves_what_xla_says():
    """f32 [8, 64] @ [64, 32] on a CPU: operands and result once, nothing to correct."""
    book = compiled(lambda x, w: x @ w, (8, 64), (64, 32))
    assert items(book) == {
        ("weights", "in place", "read"): 4 * (8 * 64 + 64 * 32),
        ("output", "activations", "write"): 4 * 8 * 32,
    }
    assert book.traffic == book.with_trips == book.reported
    assert corrections(book) == {}


@pytest.mark.parametrize("pages", [64, 4096])
def test_a_fused_gather_moves_the_pages_that_it_reads(pages):
    """4 pages of 16 x 64 f32 out of a pool of 64 or 4096: 4 pages read and 4 written; the rest of the pool is a named artefact."""
    page = 4 * 16 * 64
    table = jax.ShapeDtypeStruct((4,), jnp.int32)
    book = compiled(lambda pool, table: pool[table] * 2, (pages, 16, 64), table)
    assert book.reported.bytes >= pages * page  # so there is something to correct
    assert items(book)["weights", "in place", "read"] == 4 * page
    assert items(book)["output", "activations", "write"] == 4 * page
    assert corrections(book)[GATHER] == -(pages - 4) * page
    assert book.traffic.bytes - 8 * page < 200  # indices


def test_a_donated_pool_is_updated_in_place():
    """One row of 64 f32 into a pool of 1000: the row is read and written; a pool that is not donated is copied once more, whole."""

    def write(pool, row, i):
        return jax.lax.dynamic_update_slice(pool, row, (i, 0))

    shapes = (1000, 64), (1, 64), jax.ShapeDtypeStruct((), jnp.int32)
    donated, kept = compiled(write, *shapes, donate=(0,)), compiled(write, *shapes)
    assert of_kind(donated, "kv") == {("updated", "write"): 4 * 64}
    assert of_kind(kept, "kv") == {("updated", "write"): 4 * 64, ("copied", "read"): 4 * 64000, ("copied", "write"): 4 * 64000}
    assert donated.traffic.bytes < 4 * 64 * 2 + 50


def test_a_scan_reads_its_weights_once():
    """Eight matrices of 64 x 64 f32 under scan: the stack is read once over all trips, whatever is copied out of it besides."""

    def layers(x, w):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

    book = compiled(layers, (4, 64), (8, 64, 64))
    stack = 4 * 8 * 64 * 64
    assert of_kind(book, "weights")["in place", "read"] == pytest.approx(stack + 4 * 4 * 64, abs=4 * 4 * 64)  # and x
    assert sum(amount for (role, _), amount in of_kind(book, "weights").items() if role == "sliced") in (0, 2 * stack)
    assert book.traffic.flops >= 8 * 2 * 4 * 64 * 64 > book.reported.flops


def test_bf16_weights_on_a_cpu_are_converted_and_the_ledger_says_so():
    """A CPU multiplies bf16 weights in f32: read (2 B an element), written as f32 (4 B) and read again (4 B)."""
    book = compiled(lambda x, w: x @ w, (8, 256), (256, 512), dtype=jnp.bfloat16)
    elements = 8 * 256 + 256 * 512
    assert of_kind(book, "weights") == {
        ("in place", "read"): 2 * elements,
        ("converted", "write"): 4 * elements,
        ("converted", "read"): 4 * elements,
    }


def test_loops_that_data_bound_need_their_count():
    """A while over n, an argument: no traffic without its count; with it, each trip moves the same."""

    def repeat(x, n):
        return jax.lax.fori_loop(0, n, lambda _, x: x @ x, x)

    arguments = jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    program = jax.jit(repeat).lower(*arguments).compile()
    for ask in (lambda book: book.traffic, lambda book: book.by_component(), lambda book: book.link_bytes):
        with pytest.raises(UserError, match="trips=n"):
            ask(ledger(program))
    bytes_of = [ledger(program, trips).traffic.bytes for trips in (1, 2, 7)]
    assert bytes_of[2] - bytes_of[1] == 5 * (bytes_of[1] - bytes_of[0]) > 0


def test_a_buffer_that_a_loop_fills_from_the_pool_is_the_pool():
    """Layers of a pool taken in and put out by a scan (xs and ys): the fresh buffer's bytes are the state's, and none are unknown."""

    def step(pool, row):
        def layer(_, pool):
            return 0, jax.lax.dynamic_update_slice(pool, row, (3, 0))

        return jax.lax.scan(layer, 0, pool)[1]

    book = compiled(step, (4, 100, 64), (1, 64))
    assert set(of_kind(book, "kv")) >= {("in place", "read"), ("updated", "write")}
    assert {kind for kind, _, _ in items(book)} <= {"kv", "weights", "intermediate", "argument"}


def test_of_a_conditional_one_branch_moves():
    """A branch that reads 4096 elements and one that reads 1024: the larger, as a limit."""
    branch = """%{name} {{
  %p = f32[{n}]{{0}} parameter(0)
  ROOT %r = f32[{n}]{{0}} negate(%p)
}}
"""
    big, small = branch.format(name="big", n=4096), branch.format(name="small", n=4096).replace("negate(%p)", "bitcast(%p)")
    book = ledger(
        module(
            """  %choice = pred[] parameter(0)
  %x = f32[4096]{0} parameter(1)
  ROOT %y = f32[4096]{0} conditional(%choice, %x, %x), true_computation=%small, false_computation=%big""",
            big + small,
        )
    )
    assert book.traffic.bytes == 2 * 4 * 4096
    line = next(line for line in book.lines if line.opcode == "conditional")
    assert line.confidence == "bound"
    assert set(corrections(book)) <= {BRANCHES}


@pytest.mark.parametrize(("folder", "name"), cases())
def test_books_balance_line_by_line(folder, name):
    """Reported bytes + named corrections = items, for each line exactly; and the sums by component are the total."""
    book = kept(name, folder)
    for line in book.lines:
        assert line.reported.bytes + sum(amount for _, amount in line.traffic.corrections) == line.traffic.cost.bytes
        assert line.confidence in CONFIDENCE
        assert {reason for reason, _ in line.traffic.corrections} <= set(REASONS)
        for item in line.traffic.items:
            assert item.bytes > 0 and item.kind in KINDS and item.role in ROLES and item.direction in ("read", "write")
    parts = book.by_component().values()
    assert sum(cost.bytes for cost in parts) == pytest.approx(book.traffic.bytes, rel=1e-12)
    assert sum(cost.flops for cost in parts) == pytest.approx(book.traffic.flops, rel=1e-12)
    if not any(line.opcode == "custom-call" for line in book.lines):
        assert book.traffic.flops == pytest.approx(book.with_trips.flops, rel=1e-12)
    assert book.traffic.bytes == pytest.approx(book.with_trips.bytes + sum(corrections(book).values()), rel=1e-12)


def test_lines_say_what_they_are():
    """A line has a component, a confidence word, and notes that name the corrections."""
    book = kept("h100_unroll_gather_B4")
    rows = next(line for line in book.lines if line.component == "embed" and line.confidence == "corrected")
    assert GATHER in rows.notes
    assert book.top(1)[0].component == "head"  # 32000 x 1024 bf16, the largest array of that model
    assert book.lines[0].traffic.cost == Cost()
