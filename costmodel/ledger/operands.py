"""The operands and results of one instruction: what XLA charges for each, what of it moves, and the reason for the difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from costmodel.hlo.byte_rules import parameter_bytes, size
from costmodel.hlo.module import Computation, Instruction, Module, Shape
from costmodel.ledger.custom_calls import Price
from costmodel.ledger.fusion_access import combines, parameter_touched, result_touched
from costmodel.ledger.provenance import aliases

# Why memory traffic differs from the bytes that XLA reports: a closed set of reasons, each a correction that `Traffic` names.
GATHER = "gather charged for its whole operand"
SLICE = "slice charged for its whole operand"
UPDATE = "update charged for its whole buffer"
OVERWRITE = "update charged for reading what it overwrites"
INDICES = "indices of a gather counted as the kernel sees them"
ON_CHIP = "kept on chip"
ON_HOST = "kept in host memory"
PREFETCH = "prefetch counted more than once"
NEXT_STEP = "prefetch for the next step counted too"
PAIR = "asynchronous pair counted twice"
COLLECTIVE = "collective counted as memory traffic"
VIEW = "view counted as a copy"
BRANCHES = "maximum over the branches, field by field"
TWICE = "operand counted more than once"
TILES = "tiles that an array does not fill"
LEFT_OUT = "left out by XLA"
CUSTOM_CALL = "custom call left out by XLA"

REASONS: Mapping[str, str] = {
    GATHER: "a gather in a fusion reads the rows that it gives, XLA charges the table",
    SLICE: "likewise a slice behind a conversion",
    UPDATE: "a scatter or dynamic-update-slice in a fusion writes the update in place, XLA charges the buffer, read and written",
    OVERWRITE: "a scatter that sets needs nothing of what was there",
    INDICES: "XLA charges the indices that a custom fusion calculates, the fusion reads those that it is given",
    ON_CHIP: "the compiler placed the array in on-chip memory, S(n) of a TPU's layout",
    ON_HOST: "S(5): it crosses the host's bus, not the device's memory",
    PREFETCH: "XLA charges the tuples of copy-start and copy-done besides the copy",
    NEXT_STEP: "fetched at the end of one step for the next, and in the next step charged again where it is read",
    PAIR: "the done of another asynchronous operation only waits",
    COLLECTIVE: "it crosses links, see `costmodel.ledger.collectives`",
    VIEW: "a tuple's table of pointers, a transpose that only renames, an operand that a fusion hands on",
    BRANCHES: "the branch that runs has its own lines, XLA's maximum takes FLOPs and bytes from different ones",
    TWICE: "XLA adds up the readers of an operand within a fusion",
    TILES: "a TPU keeps arrays in whole tiles and charges them so; traffic here is of the data, the padding of tiles left out",
    LEFT_OUT: "XLA charges the first of several indices, and of several results sometimes the table of pointers",
    CUSTOM_CALL: "XLA knows nothing of what it calls by name, `costmodel.ledger.custom_calls` does",
}


_WHY = {"gather": GATHER, "slice": SLICE, "update": UPDATE, "handed on": VIEW, "": TWICE}


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """One operand or result of an instruction.

    Attributes:
      place: number of the operand, or index of the result in the tuple that the instruction gives.
      moved, charged: bytes that move, wherever the array lies, and bytes that XLA counts.
      reason: why they differ; "" where they don't.
      update: the result is updated in place, so that only a part of it is written.
    """

    direction: str
    place: int | tuple[int, ...]
    shape: Shape
    moved: float
    charged: float
    reason: str = ""
    update: bool = False


def _part(
    direction: str, place: int | tuple[int, ...], shape: Shape, moved: float, charged: float, why: str, update: bool = False
) -> Operand:
    """A part with its reason: `why` where less moves than is charged, else that XLA left something out."""
    reason = "" if moved == charged else why if moved < charged else LEFT_OUT
    return Operand(direction, place, shape, moved, charged, reason, update)


def operands(module: Module, computation: Computation, instruction: Instruction) -> list[Operand]:
    """The parts of an instruction that is no control flow, custom call, collective or asynchronous one."""
    operands = [computation.instructions[name].shape for name in instruction.operands]
    if instruction.opcode == "fusion":
        return _fusion(module, instruction, operands)
    results = leaves(instruction.shape)
    whole = [_part("read", k, shape, shape.bytes, size(shape), TWICE) for k, shape in enumerate(operands)]
    written = [_part("write", path, shape, shape.bytes, size(shape) if not path else 0, TWICE) for path, shape in results]
    if instruction.opcode in ("slice", "dynamic-slice", "gather"):
        cut = instruction.shape.bytes
        return [_part("read", 0, operands[0], cut, cut, ""), *_indices(instruction, whole[1:]), *written]
    if instruction.opcode == "dynamic-update-slice":
        moved = operands[1].bytes
        return [whole[1], *_indices(instruction, whole[2:]), _part("write", (), instruction.shape, moved, moved, "", True)]
    if instruction.opcode == "scatter":
        count = len(operands) // 2  # operands, the indices, as many updates
        found = whole[count:]
        for number, (path, shape) in enumerate(results):
            update = operands[count + 1 + number].bytes
            found.append(_part("read", number, shape, update if combines(module, instruction) else 0, update, OVERWRITE))
            found.append(_part("write", path, shape, update, update, "", True))
        return found
    return whole + written


def _indices(instruction: Instruction, whole: Sequence[Operand]) -> list[Operand]:
    """Start indices: of several operands XLA charges the first alone."""
    several = instruction.opcode != "gather"
    return [
        _part("read", p.place, p.shape, p.moved, p.charged if not (several and k) else 0, TWICE) for k, p in enumerate(whole)
    ]


def leaves(shape: Shape, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Shape]]:
    """The arrays of a shape with their places in it; no tokens."""
    if shape.dtype == "tuple":
        return [leaf for k, part in enumerate(shape.parts) for leaf in leaves(part, (*path, k))]
    return [] if shape.dtype in ("token", "opaque") else [(path, shape)]


def _fusion(module: Module, fusion: Instruction, operands: Sequence[Shape]) -> list[Operand]:
    fused = module.computations[fusion.callees("calls")[0]]
    inner = [
        i
        for i in fused.instructions.values()
        if i.opcode in ("gather", "scatter") and fusion.attributes.get("kind") == "kCustom"
    ]
    found = []
    for k, shape in enumerate(operands):
        touch = parameter_touched(module, fusion, k)
        charged = touch.bytes if inner else parameter_bytes(module, fused, fused.parameters[k])
        found.append(_part("read", k, shape, touch.bytes, charged, _WHY[touch.why]))
    for path, shape in leaves(fusion.shape):
        touch = result_touched(module, fusion, path)
        charged = touch.bytes if inner else _charged(fused, path, shape)
        found.append(_part("write", path, shape, touch.bytes, charged, _WHY[touch.why], touch.why == "update"))
    for constant in fused.instructions.values():
        if constant.opcode == "constant" and constant.shape.elements > 1 and not inner:
            found.append(Operand("read", -1, constant.shape, size(constant.shape), size(constant.shape)))
    return found


def _charged(fused: Computation, path: tuple[int, ...], shape: Shape) -> int:
    """What XLA charges for a result of a fusion: one that a dynamic-update-slice makes, as the update."""
    maker = fused.instructions[fused.root.operands[path[0]]] if fused.root.opcode == "tuple" and path else fused.root
    return size(fused.instructions[maker.operands[1]].shape) if maker.opcode == "dynamic-update-slice" else size(shape)


def custom_call_operands(instruction: Instruction, operands: Sequence[Shape], price: Price) -> list[Operand]:
    """The parts of a priced custom call. Of a total alone, results come first; the rest is read, of each operand by its size."""
    results = leaves(instruction.shape)
    given = aliases(instruction)
    written = [(path, shape) for k, (path, shape) in enumerate(results) if k not in price.scratch]
    reads: Sequence[float]
    writes: Sequence[float]
    if price.bytes is None:
        reads, writes = [shape.bytes for shape in operands], [shape.bytes for _, shape in written]
    else:
        fresh = [0 if path in given else shape.bytes for path, shape in written]
        writes = _divided(min(sum(fresh), price.bytes), fresh)
        reads = _divided(max(price.bytes - sum(fresh), 0), [shape.bytes for shape in operands])
    found = [
        Operand("read", k, shape, moved, 0, CUSTOM_CALL)
        for k, (shape, moved) in enumerate(zip(operands, reads, strict=True))
        if moved
    ]
    found += [
        Operand("write", path, shape, moved, 0, CUSTOM_CALL)
        for (path, shape), moved in zip(written, writes, strict=True)
        if moved
    ]
    return found


def _divided(amount: float, sizes: Sequence[int]) -> list[float]:
    """An amount in proportion to sizes; the largest takes what rounding leaves, so that the sum is exact."""
    if not sum(sizes):
        return [0.0 for _ in sizes]
    shares = [float(round(amount * each / sum(sizes))) for each in sizes]
    shares[max(range(len(sizes)), key=sizes.__getitem__)] += amount - sum(shares)
    return shares
