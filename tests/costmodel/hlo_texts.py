"""Modules of one instruction, to be counted by us and by XLA."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.hlo.byte_rules import Sizes, size
from costmodel.hlo.cost import Cost, total
from costmodel.hlo.count import count
from costmodel.hlo.module import Module, parse

ADD = "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n  ROOT %r = f32[] add(%a, %b)\n}\n\n"
PICK = """%pick (a: f32[], i: s32[], b: f32[], j: s32[]) -> (f32[], s32[]) {
  %a = f32[] parameter(0)
  %i = s32[] parameter(1)
  %b = f32[] parameter(2)
  %j = s32[] parameter(3)
  %g = pred[] compare(%a, %b), direction=GT
  %s = f32[] select(%g, %a, %b)
  %e = f32[] exponential(%s)
  %k = s32[] select(%g, %i, %j)
  ROOT %t = (f32[], s32[]) tuple(%e, %k)
}

"""
GREATER = """%greater (a: f32[], b: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = pred[] compare(%a, %b), direction=GE
}

"""


def text(parameters: Sequence[str], root: str, before: str = "", head: str = "") -> str:
    """A module of one instruction and, in `root`, what it needs; parameters are %p0, %p1, ..."""
    lines = [f"  %p{place} = {shape} parameter({place})" for place, shape in enumerate(parameters)]
    return f"HloModule m{head}\n\n{before}ENTRY %e {{\n" + "\n".join([*lines, *root.splitlines()]) + "\n}\n"


def fused(signature: str, body: str, parameters: Sequence[str], result: str, kind: str = "kLoop", before: str = "") -> str:
    """A module of one fusion with the given signature and body."""
    names = ", ".join(f"%p{place}" for place in range(len(parameters)))
    inside = f"{before}%f {signature} {{\n{body}\n}}\n\n"
    return text(parameters, f"  ROOT %r = {result} fusion({names}), kind={kind}, calls=%f", inside)


def counted(text: str, sizes: Sizes = size) -> Cost:
    """Our count of a program."""
    return counted_module(parse(text), sizes)


def counted_module(module: Module, sizes: Sizes = size) -> Cost:
    costs = count(module, sizes)
    return total(costs[module.entry.name, name] for name in module.entry.instructions)


F, S, M = "f32[9]{0}", "s32[]", "f32[9,8]{1,0}"
PAIRS = ", replica_groups={{0,1}}"
TWO = ", replica_count=2"
ROWS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
TAKE = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}"
P9 = "  %a = f32[9]{0} parameter(0)\n"
