"""Collectives as bytes on links: the ring model, by axis of the mesh.

Per device, among n of them, for an operand of s bytes a device (all-gather: s is the shard, so the whole is n s):

| operation | sent by a device | where from |
|---|---|---|
| all-reduce | 2 (n-1)/n s | reduce-scatter, then all-gather (Patarasuk and Yuan 2009) |
| all-gather | (n-1) s | the shards of the others pass through |
| reduce-scatter | (n-1)/n s | one part is its own |
| all-to-all | (n-1)/n s | one part is its own |
| collective-permute | s | if the device sends at all |
| collective-broadcast | s | each passes it on |

XLA charges a collective as memory traffic, and start and done of an asynchronous one both; here the start counts, once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence

from costmodel.hlo.byte_rules import arrays
from costmodel.hlo.module import Computation, Instruction, Module, Shape
from costmodel.hlo.pairs import synchronous
from costmodel.ledger.provenance import COLLECTIVES
from models.errors import UserError

_MESH = re.compile(r"mesh\[((?:'[^']+'=\d+,?)+)\]\{((?:'[^']+',?)+)\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")

_ORDER = re.compile(r"\(\[([\d,]+)\](?:T\(([\d,]+)\))?\)(\{.*\})")


@dataclasses.dataclass(frozen=True, slots=True)
class Collective:
    """One collective of a program.

    Attributes:
      operation: "all-reduce", ...
      devices: how many take part in one group, the largest; of a permutation, in all.
      axis: axes of the mesh that the groups span, "x" or "x,y"; "" without a mesh, or where the groups are not along its axes.
      payload: bytes of the operands on one device.
      link_bytes: bytes that one device sends.
    """

    operation: str
    devices: int
    axis: str
    payload: int
    link_bytes: float


def collective(
    module: Module, instruction: Instruction, operands: Sequence[Shape], mesh: Mapping[str, int] | None = None
) -> Collective | None:
    """Price a collective, or its start; None for anything else.

    Args:
      operands: shapes of the operands.
      mesh: size of each axis of the mesh, first axis slowest, devices numbered in that order.

    Raises:
      UserError: replica groups in a form that isn't known.
    """
    call = synchronous(module, instruction)
    if call.opcode not in COLLECTIVES:
        return None
    payload = sum(array.bytes for operand in operands for array in arrays(operand))
    if call.opcode == "collective-permute":
        pairs = [_numbers(pair) for pair in re.findall(r"\{([\d,\s]+)\}", call.attributes.get("source_target_pairs", ""))]
        sends = any(source != target for source, target in pairs)
        devices = len({device for pair in pairs for device in pair})
        return Collective(call.opcode, devices, _shift_axis(pairs, mesh), payload, payload if sends else 0)
    groups = replica_groups(call, module.partitions)
    n = max(len(group) for group in groups)
    shares = {"all-reduce": 2 * (n - 1) / n, "all-gather": n - 1, "collective-broadcast": 1 if n > 1 else 0}
    return Collective(call.opcode, n, _axis(groups, mesh), payload, payload * shares.get(call.opcode, (n - 1) / n))


def check_mesh(mesh: Mapping[str, int] | None, devices: int) -> None:
    """Raises UserError for a mesh that has not as many places as the program has devices."""
    for axis, size in (mesh or {}).items():
        if size < 1:
            raise UserError(f"mesh axis {axis!r} is {size}; a size is at least 1")
    places = math.prod((mesh or {}).values())
    if mesh and places != devices:
        raise UserError(
            f"mesh {dict(mesh)} has {places} places, but the program is partitioned over {devices} devices; give its mesh"
        )


def fused_collectives(module: Module, fusion: Instruction) -> list[tuple[Instruction, list[Shape]]]:
    """The collectives that begin in a fusion, with the shapes of their operands.

    A TPU runs a collective beside the work of fusions: one begins it (AsyncCollectiveStart), others carry it on, one ends it, and each
    names it. A reduce-scatter it writes as a fusion of an all-reduce of which nothing but slices leaves.
    """
    computation = module.computations[fusion.callees("calls")[0]]
    fused = computation.instructions
    begins = any(each.attributes.get("custom_call_target") == '"AsyncCollectiveStart"' for each in fused.values())
    found = []
    for each in fused.values():
        carried_on = "async_collective_fusion_config" in each.attributes.get("backend_config", "") and not begins
        if each.opcode in COLLECTIVES and not carried_on:
            scattered = each.opcode == "all-reduce" and _only_sliced(computation, each)
            call = dataclasses.replace(each, opcode="reduce-scatter") if scattered else each
            found.append((call, [fused[name].shape for name in each.operands]))
    return found


def _only_sliced(computation: Computation, instruction: Instruction) -> bool:
    """Whether every reader of an instruction, or of an element of it, takes a slice."""
    readers = computation.users[instruction.name]
    return bool(readers) and all(
        reader.opcode == "dynamic-slice" or (reader.opcode == "get-tuple-element" and _only_sliced(computation, reader))
        for reader in readers
    )


def replica_groups(instruction: Instruction, devices: int) -> list[tuple[int, ...]]:
    """The groups of devices; none given means one group of all. The text has one of four forms:

    {{0,1},{2,3}} lists them; [2,2]<=[2,2]T(1,0) numbers the devices in the shape on the right, transposes, and cuts into the shape on the
    left; mesh['x'=2,'y'=2]{'y'} are the devices that differ along the axes in braces; mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'y'}
    are the same where the mesh holds the devices in that order.

    Raises:
      UserError: another form.
    """
    text = instruction.attributes.get("replica_groups", "{}").replace(" ", "")
    ordered = _ORDER.fullmatch(instruction.attributes.get("device_ids", "").replace(" ", ""))
    if iota := _IOTA.fullmatch(text):
        shape, dims, permuted = (_numbers(part or "") for part in iota.groups())
        ids = _iota(dims, permuted)
        return [tuple(ids[k : k + shape[-1]]) for k in range(0, len(ids), shape[-1])]
    if mesh := _MESH.fullmatch(text + (ordered[3] if ordered else "")):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh[1])}
        ids = _iota(_numbers(ordered[1]), _numbers(ordered[2] or "")) if ordered else list(range(math.prod(sizes.values())))
        return [tuple(sorted(ids[place] for place in group)) for group in _along(sizes, re.findall(r"'([^']+)'", mesh[2]))]
    if re.fullmatch(r"\{(\{[\d,]*\},?)*\}", text):
        groups = [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", text)]
        return groups or [tuple(range(devices))]
    fix = "expected {{0,1},{2,3}}, [2,2]<=[4] or mesh['x'=2,'y'=2]{'y'}"
    raise UserError(f"replica_groups={text[:60]} of {instruction.name!r} is of no known form; {fix}")


def _iota(dims: tuple[int, ...], permuted: tuple[int, ...]) -> list[int]:
    """0, 1, ... in an array of shape `dims` whose axes are then permuted, if at all, read in order."""
    axes = permuted or tuple(range(len(dims)))
    strides = [math.prod(dims[axis + 1 :]) for axis in axes]
    places = itertools.product(*(range(dims[axis]) for axis in axes))
    return [sum(k * stride for k, stride in zip(at, strides, strict=True)) for at in places]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", text))


def _along(mesh: Mapping[str, int], axes: Sequence[str]) -> set[frozenset[int]]:
    """The groups of devices that differ along `axes` only."""
    found: dict[tuple[int, ...], set[int]] = {}
    for number, at in enumerate(itertools.product(*(range(size) for size in mesh.values()))):
        found.setdefault(tuple(k for k, axis in zip(at, mesh, strict=True) if axis not in axes), set()).add(number)
    return {frozenset(group) for group in found.values()}


def _axis(groups: Sequence[Sequence[int]], mesh: Mapping[str, int] | None) -> str:
    """The fewest axes of the mesh whose groups these are."""
    wanted = {frozenset(group) for group in groups}
    for count in range(1, len(mesh or {}) + 1):
        for axes in itertools.combinations(mesh or {}, count):
            if mesh and _along(mesh, axes) == wanted:
                return ",".join(axes)
    return ""


def _shift_axis(pairs: Sequence[tuple[int, ...]], mesh: Mapping[str, int] | None) -> str:
    """The axis along which every pair of a permutation lies, or the fewest axes."""
    for count in range(1, len(mesh or {}) + 1):
        for axes in itertools.combinations(mesh or {}, count):
            if mesh and all(any(set(pair) <= group for group in _along(mesh, axes)) for pair in pairs):
                return ",".join(axes)
    return ""
