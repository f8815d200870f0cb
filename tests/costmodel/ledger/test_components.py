"""Components from scopes: names as JAX writes them, and who gets the bytes and FLOPs of instructions without one.

Oracles: names compiled here by this JAX, and programs written by hand in which it is plain for whom each byte moves.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from costmodel.ledger.components import SCOPES, UNATTRIBUTED, component, primitive
from costmodel.ledger.ledger import ledger
from tests.costmodel.hlo_programs import STEPS, cases, kept


@pytest.mark.parametrize(
    ("op_name", "expected"),
    [
        ("jit(step)/layer3/attn/qkv/dot_general", "qkv"),
        ("jit(step)/while/body/closed_call/layer/attn/norm/mul", "norm"),
        ("jit(step)/layer0/attn/pv/bkgs,bskd->bkgd/dot_general", "values"),
        ("jit(step)/final/logits/dot_general", "head"),
        ("jit(step)/layer0/attn/kv_write/jit(floor_divide)/jit(_where)/select_n", "kv_write"),
        ("jit(step)/layer12/attention/segment0/kv_read/while/body/gather", "kv_read"),  # the innermost that is known
        ("jit(step)/vmap(scores)/dot_general", "scores"),
        ("jit(step)/transpose(jvp(down))/dot_general", "down"),
        ("layer/attn/norm/reduce_sum", "norm"),  # functions of reductions lose the front
        ("jit(step)/my_scope/add", "my_scope"),  # unknown: its own name
        ("jit(step)/down/my_scope/add", "down"),
        ("jit(step)/layer0/reshape", None),  # where, but not what
        ("jit(step)/while/body/jit(dynamic_index_in_dim)/dynamic_slice", None),
        ("jit(step)/cond/branch_1_fun/add", None),
        ("jit(norm)/add", None),  # a function of that name is no scope
        ("params['layers'][0]['norm/x']", None),  # an argument
        ("reduce_sum", None),
        ("", None),
    ],
)
def test_component(op_name, expected):
    assert component(op_name) == expected


def test_scopes_are_open():
    """A caller's table adds a scope, and may say that a known one is only a place."""
    assert component("jit(f)/my_kernel/add", {**SCOPES, "my_kernel": "values"}) == "values"
    assert component("jit(f)/out/norm/add", {**SCOPES, "norm": None}) == "out"


def test_primitive():
    assert primitive("jit(step)/layer3/qkv/dot_general") == "dot_general"


def test_names_that_this_jax_writes():
    """Nested scopes, a scan, a function under jit, vmap: the matmul in the innermost scope is its component's, all else the others'."""

    @jax.jit
    def inner(x):
        return jnp.tanh(x)

    def step(x, w):
        def layer(x, w):
            with jax.named_scope("layer"), jax.named_scope("down"):
                return inner(jax.vmap(lambda row: row @ w)(x)), None

        with jax.named_scope("sample"):
            return jax.lax.scan(layer, x, w)[0].sum(axis=0)

    shapes = jax.ShapeDtypeStruct((4, 64), jnp.float32), jax.ShapeDtypeStruct((8, 64, 64), jnp.float32)
    by = ledger(jax.jit(step).lower(*shapes).compile()).by_component()
    assert by["down"].flops == pytest.approx(8 * 2 * 4 * 64 * 64, rel=0.01)
    assert by["down"].transcendentals == 8 * 4 * 64
    assert by["down"].bytes >= 8 * 64 * 64 * 4
    assert by["sample"].flops >= 3 * 64  # the sum over four rows, and the loop's own counting
    assert UNATTRIBUTED not in by


FUSED = """HloModule m, is_scheduled=true

%fused {
  %p0 = f32[4,32]{1,0} parameter(0)
  %p1 = f32[32]{0} parameter(1)
  %p2 = f32[32,64]{1,0} parameter(2)
  %scale = f32[4,32]{1,0} broadcast(%p1), dimensions={1}, metadata={op_name="jit(f)/norm/mul"}
  %x = f32[4,32]{1,0} multiply(%p0, %scale), metadata={op_name="jit(f)/norm/mul"}
  ROOT %y = f32[4,64]{1,0} dot(%x, %p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/qkv/dot_general"}
}

ENTRY %main {
  %x = f32[4,32]{1,0} parameter(0)
  %s = f32[32]{0} parameter(1)
  %w = f32[32,64]{1,0} parameter(2)
  ROOT %fusion = f32[4,64]{1,0} fusion(%x, %s, %w), kind=kOutput, calls=%fused, metadata={op_name="jit(f)/qkv/dot_general"}
}
"""


def test_a_fusion_spans_two_components():
    """x and the scale are read for the norm, the matrix for qkv, which writes; each multiplies for itself."""
    by = ledger(FUSED).by_component()
    assert by["norm"].bytes == 4 * (4 * 32 + 32)
    assert by["qkv"].bytes == 4 * (32 * 64 + 4 * 64)
    assert (by["norm"].flops, by["qkv"].flops) == (4 * 32, 2 * 4 * 32 * 64)
    assert list(by) == ["qkv", "norm"]  # most bytes first


def entry(lines: str, before: str = "") -> str:
    return f"HloModule m, is_scheduled=true\n\n{before}\nENTRY %main {{\n{lines}\n}}\n"


def test_copies_work_for_their_first_named_reader():
    """A copy, a convert and a bitcast without names, in a row, before a product: all of it is for the product."""
    by = ledger(
        entry(
            """  %w = bf16[64,64]{1,0} parameter(0)
  %x = f32[4,64]{1,0} parameter(1)
  %copy = bf16[64,64]{0,1} copy(%w)
  %wide = f32[64,64]{0,1} convert(%copy)
  %view = f32[64,64]{1,0} bitcast(%wide)
  ROOT %y = f32[4,64]{1,0} dot(%x, %view), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/out/dot"}"""
        )
    ).by_component()
    assert set(by) == {"out"}


def test_a_copy_that_leaves_the_program_works_for_what_made_it():
    by = ledger(
        entry(
            """  %x = f32[64]{0} parameter(0)
  %y = f32[64]{0} negate(%x), metadata={op_name="jit(f)/sample/neg"}
  ROOT %copy = f32[64]{0} copy(%y)"""
        )
    ).by_component()
    assert set(by) == {"sample"}


def test_arithmetic_without_a_name_is_known_by_the_view_of_its_result():
    """A product that lost its name in a rewrite, whose bitcast kept it, then read for another component."""
    by = ledger(
        entry(
            """  %x = f32[4,64]{1,0} parameter(0)
  %w = f32[64,64]{1,0} parameter(1)
  %y = f32[4,64]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %view = f32[256]{0} bitcast(%y), metadata={op_name="jit(f)/qkv/dot_general"}
  ROOT %z = f32[256]{0} negate(%view), metadata={op_name="jit(f)/rope/neg"}"""
        )
    ).by_component()
    assert by["qkv"].flops == 2 * 4 * 64 * 64
    assert by["qkv"].bytes == 4 * (4 * 64 + 64 * 64 + 4 * 64)
    assert by["rope"].bytes == 2 * 4 * 256


def test_who_reads_is_the_reader_and_not_a_view_on_the_way():
    """Logits, under the head's name still as a bitcast within the fusion that takes their maximum: they are read to sample."""
    by = ledger(
        entry(
            """  %logits = f32[4,64]{1,0} parameter(0)
  ROOT %top = f32[256]{0} fusion(%logits), kind=kLoop, calls=%fused""",
            """%fused {
  %p0 = f32[4,64]{1,0} parameter(0)
  %view = f32[256]{0} bitcast(%p0), metadata={op_name="jit(f)/head/dot_general"}
  ROOT %n = f32[256]{0} negate(%view), metadata={op_name="jit(f)/sample/neg"}
}
""",
        )
    ).by_component()
    assert set(by) == {"sample"}


def test_arithmetic_that_lost_its_name_in_a_fusion_has_that_of_what_it_is_fused_with():
    """A product between a conversion under its name and a reader of another component."""
    by = ledger(
        entry(
            """  %x = bf16[4,64]{1,0} parameter(0)
  %w = f32[64,64]{1,0} parameter(1)
  %y = f32[4,64]{1,0} fusion(%x, %w), kind=kLoop, calls=%fused
  ROOT %z = f32[4,64]{1,0} negate(%y), metadata={op_name="jit(f)/sample/neg"}""",
            """%fused {
  %p0 = bf16[4,64]{1,0} parameter(0)
  %p1 = f32[64,64]{1,0} parameter(1)
  %wide = f32[4,64]{1,0} convert(%p0), metadata={op_name="jit(f)/head/dot_general"}
  ROOT %y = f32[4,64]{1,0} dot(%wide, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
""",
        )
    ).by_component()
    assert by["head"].flops == 2 * 4 * 64 * 64 + 4 * 64
    assert by["sample"].flops == 4 * 64


def test_what_no_scope_speaks_of_is_unattributed():
    by = ledger(entry("  %x = f32[64]{0} parameter(0)\n  ROOT %y = f32[64]{0} negate(%x)")).by_component()
    assert set(by) == {UNATTRIBUTED}


@pytest.mark.parametrize(("folder", "name"), cases([STEPS]))
def test_at_most_one_percent_of_our_steps_is_unattributed(folder, name):
    """On every target; and each component that a step has moves or computes something."""
    by = kept(name, folder).by_component()
    assert UNATTRIBUTED not in by or by[UNATTRIBUTED].bytes <= 0.01 * kept(name, folder).traffic.bytes
    assert {"embed", "norm", "qkv", "rope", "kv_write", "kv_read", "scores", "softmax", "values", "out"} <= set(by)
    assert {"gate_up", "down", "head", "sample"} <= set(by)
    assert set(by) <= {*SCOPES.values(), UNATTRIBUTED}
