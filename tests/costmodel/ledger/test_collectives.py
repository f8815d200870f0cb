"""Link bytes of collectives: the ring model by hand, replica groups against NumPy, axes of a mesh, and programs compiled for 8 devices."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from costmodel.compile.targets import compile_for
from costmodel.hlo.module import Instruction, Shape
from costmodel.ledger.collectives import replica_groups
from costmodel.ledger.ledger import ledger
from costmodel.ledger.operands import COLLECTIVE, REASONS
from models.errors import UserError
from tests.costmodel.books import MESH, SIZE, partitioned


def one(operation: str, result: str, attributes: str) -> str:
    return partitioned(f"  %p = f32[64,128]{{1,0}} parameter(0)\n  ROOT %c = {result} {operation}(%p), {attributes}")


@pytest.mark.parametrize(
    ("operation", "result", "attributes", "sent"),
    [
        ("all-reduce", "f32[64,128]{1,0}", "replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%sum", 2 * 3 / 4 * SIZE),
        ("all-reduce", "f32[64,128]{1,0}", "replica_groups={}, to_apply=%sum", 2 * 7 / 8 * SIZE),
        ("all-gather", "f32[256,128]{1,0}", "replica_groups=[2,4]<=[8], dimensions={0}", 3 * SIZE),  # 3/4 of the whole, 4 SIZE
        ("reduce-scatter", "f32[16,128]{1,0}", "replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%sum", 3 / 4 * SIZE),
        ("all-to-all", "f32[64,128]{1,0}", "replica_groups=[2,4]<=[8], dimensions={0}", 3 / 4 * SIZE),
        ("collective-permute", "f32[64,128]{1,0}", "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}", SIZE),
        ("collective-permute", "f32[64,128]{1,0}", "source_target_pairs={{0,0},{1,1}}", 0),
        ("all-reduce", "f32[64,128]{1,0}", "replica_groups={{0},{1}}, to_apply=%sum", 0),  # alone in its group
    ],
)
def test_ring_model(operation, result, attributes, sent):
    """Bytes that one device sends; nothing of it is memory traffic, and what XLA charges is corrected by that name."""
    book = ledger(one(operation, result, attributes))
    assert sum(book.link_bytes.values()) == sent
    assert book.traffic.bytes == 0
    reasons = {reason: amount for line in book.lines for reason, amount in line.traffic.corrections}
    assert reasons == {COLLECTIVE: -book.reported.bytes}


def test_a_tpu_carries_a_collective_beside_its_fusions():
    """Begun in one fusion, carried on in one that multiplies, ended in a third, each naming the all-gather: its links count once."""
    gather = "all-gather(%p0), channel_id=3, replica_groups=[4,2]<=[2,4]T(1,0), dimensions={0}, backend_config="
    off = '{"async_collective_fusion_config":{"flag_start":"-1","flag_end":"-1"}}'
    on = '{"async_collective_fusion_config":{"flag_start":"2","flag_end":"8"}}'
    text = f"""HloModule m, is_scheduled=true, num_partitions=8

%begin {{
  %p0 = f32[64,128]{{1,0:T(8,128)}} parameter(0)
  %g = f32[128,128]{{1,0:T(8,128)}} {gather}{off}
  ROOT %s = (f32[64,128]{{1,0:T(8,128)}}, f32[128,128]{{1,0:T(8,128)}}) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}}
%beside {{
  %p0 = f32[64,128]{{1,0:T(8,128)}} parameter(0)
  %p1 = f32[128,128]{{1,0:T(8,128)}} parameter(1)
  %p2 = f32[8,128]{{1,0:T(8,128)}} parameter(2)
  %g = f32[128,128]{{1,0:T(8,128)}} {gather}{on}
  %n = f32[8,128]{{1,0:T(8,128)}} negate(%p2)
  ROOT %t = (f32[8,128]{{1,0:T(8,128)}}, f32[64,128]{{1,0:T(8,128)}}, f32[128,128]{{1,0:T(8,128)}}) tuple(%n, %p0, %g)
}}
%end {{
  %p0 = f32[64,128]{{1,0:T(8,128)}} parameter(0)
  %p1 = f32[128,128]{{1,0:T(8,128)}} parameter(1)
  %g = f32[128,128]{{1,0:T(8,128)}} {gather}{on}
  ROOT %d = f32[128,128]{{1,0:T(8,128)}} custom-call(%p0, %p1, %g), custom_call_target="AsyncCollectiveDone"
}}

ENTRY %main {{
  %w = f32[64,128]{{1,0:T(8,128)}} parameter(0)
  %x = f32[8,128]{{1,0:T(8,128)}} parameter(1)
  %s = (f32[64,128]{{1,0:T(8,128)}}, f32[128,128]{{1,0:T(8,128)}}) fusion(%w), kind=kCustom, \
output_to_operand_aliasing={{{{0}}: (0, {{}})}}, calls=%begin
  %s0 = f32[64,128]{{1,0:T(8,128)}} get-tuple-element(%s), index=0
  %s1 = f32[128,128]{{1,0:T(8,128)}} get-tuple-element(%s), index=1
  %b = (f32[8,128]{{1,0:T(8,128)}}, f32[64,128]{{1,0:T(8,128)}}, f32[128,128]{{1,0:T(8,128)}}) fusion(%s0, %s1, %x), kind=kOutput, \
output_to_operand_aliasing={{{{1}}: (0, {{}}), {{2}}: (1, {{}})}}, calls=%beside
  %y = f32[8,128]{{1,0:T(8,128)}} get-tuple-element(%b), index=0
  %b1 = f32[64,128]{{1,0:T(8,128)}} get-tuple-element(%b), index=1
  %b2 = f32[128,128]{{1,0:T(8,128)}} get-tuple-element(%b), index=2
  %d = f32[128,128]{{1,0:T(8,128)}} fusion(%b1, %b2), kind=kCustom, output_to_operand_aliasing={{{{}}: (1, {{}})}}, calls=%end
  ROOT %r = (f32[8,128]{{1,0:T(8,128)}}, f32[128,128]{{1,0:T(8,128)}}) tuple(%y, %d)
}}
"""
    book = ledger(text, mesh=MESH)
    assert book.link_bytes == {"x": SIZE}
    assert book.traffic.bytes == 2 * 4 * 8 * 128  # what is multiplied beside it
    assert book.unpriced == ()


@given(
    dims=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    seed=st.randoms(use_true_random=False),
    cut=st.integers(0, 30),
)
def test_iota_groups_are_numpys(dims, seed, cut):
    """[groups,size]<=[dims]T(order) is arange(n).reshape(dims).transpose(order).reshape(groups, size)."""
    order, devices = list(range(len(dims))), math.prod(dims)
    seed.shuffle(order)
    sizes = [size for size in range(1, devices + 1) if devices % size == 0]
    size = sizes[cut % len(sizes)]
    text = f"[{devices // size},{size}]<=[{','.join(map(str, dims))}]T({','.join(map(str, order))})"
    wanted = np.arange(devices).reshape(dims).transpose(order).reshape(-1, size)
    found = replica_groups(Instruction("c", "all-reduce", Shape("f32"), attributes={"replica_groups": text}), devices)
    assert found == [tuple(row) for row in wanted.tolist()]


def test_one_group_in_three_forms():
    """What this JAX prints for the last axis of a mesh of 2 by 4."""
    forms = ["{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "mesh['a'=2,'b'=4] {'b'}", "{{0, 1, 2, 3}, {4, 5, 6, 7}}"]
    for text in forms:
        found = replica_groups(Instruction("c", "all-reduce", Shape("f32"), attributes={"replica_groups": text}), 8)
        assert sorted(found) == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_groups_of_an_unknown_form_are_an_error():
    with pytest.raises(UserError, match=r"replica_groups=.* of 'c' is of no known form"):
        ledger(one("all-reduce", "f32[64,128]{1,0}", "replica_groups=[2,4]<~[8], to_apply=%sum"))


@pytest.mark.parametrize(
    ("groups", "axis"),
    [
        ("{{0,4},{1,5},{2,6},{3,7}}", "x"),
        ("{{0,1,2,3},{4,5,6,7}}", "y"),
        ("{{7,6,5,4},{0,2,1,3}}", "y"),  # in whatever order
        ("{}", "x,y"),
        ("{{0,5},{1,4},{2,7},{3,6}}", ""),  # along none
    ],
)
def test_axes_of_the_mesh(groups, axis):
    """Devices are numbered with the last axis fastest: 4 x + y."""
    assert list(
        ledger(one("all-reduce", "f32[64,128]{1,0}", f"replica_groups={groups}, to_apply=%sum"), mesh=MESH).link_bytes
    ) == [axis]


@pytest.mark.parametrize(("mesh", "message"), [({"x": 2}, "2 places"), ({"x": 0, "y": 4}, "at least 1")])
def test_a_mesh_that_does_not_fit(mesh, message):
    with pytest.raises(UserError, match=message):
        ledger(one("all-reduce", "f32[64,128]{1,0}", "replica_groups={}, to_apply=%sum"), mesh=mesh)


def every_collective(x: jax.Array) -> tuple[jax.Array, ...]:
    """x [64, 1024] on each of the devices of a mesh of x by y, through one collective of each kind."""

    def on_each(x):
        return (
            jax.lax.psum(x, "x"),
            jax.lax.all_gather(x, "y", tiled=True),
            jax.lax.psum_scatter(x, "y", tiled=True),
            jax.lax.all_to_all(x, "x", 0, 0, tiled=True),
            jax.lax.ppermute(x, "y", [(0, 1), (1, 2), (2, 3), (3, 0)]),
        )

    specs = (PartitionSpec(), PartitionSpec(), PartitionSpec("y"), PartitionSpec("x"), PartitionSpec("y"))
    return jax.shard_map(on_each, in_specs=PartitionSpec(), out_specs=specs, check_vma=False)(x)


def test_programs_of_this_compiler_for_eight_devices():
    """Each collective that was written stands in the program with its axis, at what the ring model says."""
    size = 4 * 64 * 1024
    compiled = compile_for(
        "cpu", every_collective, jax.ShapeDtypeStruct((64, 1024), jnp.float32), mesh=MESH, specs=(PartitionSpec(),)
    )
    book = ledger(compiled, mesh=MESH)
    found = {(each.operation, each.axis): each.link_bytes for line in book.lines for each in line.traffic.collectives}
    assert found == {
        ("all-reduce", "x"): size,  # 2 (n-1)/n, n = 2
        ("all-gather", "y"): 3 * size,
        ("reduce-scatter", "y"): 3 / 4 * size,
        ("all-to-all", "x"): size / 2,
        ("collective-permute", "y"): size,
    }
    assert book.link_bytes == pytest.approx({"x": 1.5 * size, "y": 4.75 * size})
    assert all(reason in REASONS for line in book.lines for reason, _ in line.traffic.corrections)


def tensor_parallel(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ up) @ down


def test_tensor_parallel_mlp_sends_one_all_reduce():
    """x replicated, up split by columns and down by rows over 8: one all-reduce of f32 [64, 256], twice 7/8 of it."""
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 256), (256, 1024), (1024, 256))]
    specs = (PartitionSpec(), PartitionSpec(None, "model"), PartitionSpec("model", None))
    compiled = compile_for("cpu", tensor_parallel, *arguments, mesh={"model": 8}, specs=specs, out_specs=PartitionSpec())
    book = ledger(compiled, mesh={"model": 8})
    assert book.link_bytes == {"model": 2 * 7 / 8 * 4 * 64 * 256}
    assert book.traffic.flops == pytest.approx(2 * 2 * 64 * 256 * 1024 / 8, rel=0.01)


def test_groups_of_every_subset_of_a_larger_mesh():
    """For each set of axes of a mesh of 2 x 3 x 2, its groups, worked out by NumPy, are named by those axes."""
    mesh = {"a": 2, "b": 3, "c": 2}
    ids = np.arange(12).reshape(tuple(mesh.values()))
    for count in (1, 2, 3):
        for axes in itertools.combinations(range(3), count):
            moved = np.moveaxis(ids, axes, range(3 - count, 3)).reshape(-1, math.prod(ids.shape[axis] for axis in axes))
            groups = "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in moved.tolist()) + "}"
            lines = f"  %p = f32[64]{{0}} parameter(0)\n  ROOT %c = f32[64]{{0}} all-reduce(%p), replica_groups={groups}, to_apply=%sum"
            assert list(ledger(partitioned(lines, 12), mesh=mesh).link_bytes) == [",".join("abc"[axis] for axis in axes)]
