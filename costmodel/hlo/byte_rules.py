"""Bytes that XLA's HloCostAnalysis charges an instruction for; memory traffic is another matter.

The rule is the arrays of the result plus the operands, of which a tuple is a table of pointers; the exceptions are instructions that
touch a part of an operand, or nothing. A fusion is charged for its results and for what its parameters are read as.

Source: `HloCostAnalysis` of OpenXLA, as jaxlib 0.10 runs it. A TPU's compiler runs the same rules on arrays `padded` to their tiles,
which is what they take in its memory. The oddities are kept: of several start indices the first alone is charged, a gather in a fusion
reads its whole operand, and a fused scatter writes its whole operand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from costmodel.hlo.flop_rules import integers
from costmodel.hlo.module import Computation, Instruction, Module, Shape

Sizes = Callable[[Shape], int]
_POINTER = 8  # bytes of one entry of a tuple's table
# Names for what is there already, values that stand in the program, and order: nothing is read or written.
_FREE = frozenset("add-dependency after-all bitcast constant domain get-tuple-element parameter".split())


def size(shape: Shape) -> int:
    """Bytes of an array; of a tuple its table of pointers; of an opaque value one pointer; nothing of a token."""
    if shape.dtype == "tuple":
        return _POINTER * len(shape.parts)
    return _POINTER if shape.dtype == "opaque" else shape.bytes


def padded(shape: Shape) -> int:
    """Bytes of an array as a TPU keeps it, its minor dimensions rounded up to the first tile of its layout; of others as `size`."""
    order, _, tiling = shape.layout.partition(":")
    first = re.match(r"T\(([\d,]+)\)", tiling)
    if not first or not shape.elements:
        return size(shape)
    tile = [int(edge) for edge in first[1].split(",")]
    dims = [shape.dims[int(axis)] for axis in reversed(order.split(","))] if order else []
    dims = [1] * (len(tile) - len(dims)) + dims
    edges = [1] * (len(dims) - len(tile)) + tile
    places = math.prod(-(-length // edge) * edge for length, edge in zip(dims, edges, strict=True))
    return places * shape.bytes // shape.elements


def arrays(shape: Shape) -> list[Shape]:
    """The arrays of a shape, those within tuples too."""
    if shape.dtype == "tuple":
        return [array for part in shape.parts for array in arrays(part)]
    return [] if shape.dtype in ("token", "opaque") else [shape]


def moved(instruction: Instruction, operands: Sequence[Shape], sizes: Sizes = size) -> float:
    """Bytes of an instruction that is no control flow, fusion or custom call, given the shapes of its operands."""
    opcode, result = instruction.opcode, instruction.shape
    if opcode in _FREE or (opcode == "transpose" and _same_order(instruction, operands[0])):
        return 0
    if opcode == "slice":
        return 2 * sizes(result)
    if opcode == "dynamic-slice":
        return 2 * sizes(result) + _first(operands[1:], sizes)
    if opcode == "dynamic-update-slice":
        return 2 * sizes(operands[1]) + _first(operands[2:], sizes)
    if opcode == "gather":
        return 2 * sizes(result) + sizes(operands[1])
    if opcode == "scatter":
        inputs = len(operands) // 2  # n operands, the indices, n updates
        return 3 * sum(sizes(update) for update in operands[inputs + 1 :]) + sizes(operands[inputs])
    if opcode == "tuple":
        return sizes(result)
    out = sum(sizes(array) for array in arrays(result))
    if opcode == "infeed":
        return out
    if opcode == "outfeed":
        return sum(sizes(array) for operand in operands for array in arrays(operand))
    if opcode == "triangular-solve":
        return out + sizes(operands[0]) / 2 + sizes(operands[1])  # half of a triangular matrix
    if opcode == "cholesky":
        return sizes(operands[0])  # half read, half written
    return out + sum(sizes(operand) for operand in operands)


def fusion_bytes(module: Module, fusion: Instruction, sizes: Sizes = size) -> float:
    """Bytes of a fusion: results, constants of more than one element, and parameters as far as they are read."""
    fused = module.computations[fusion.callees("calls")[0]]
    constants = (i.shape for i in fused.instructions.values() if i.opcode == "constant" and i.shape.elements > 1)
    read = sum(parameter_bytes(module, fused, parameter, sizes) for parameter in fused.parameters)
    return written(fusion.shape, fused, sizes) + sum(sizes(constant) for constant in constants) + read


def written(shape: Shape, fused: Computation, sizes: Sizes = size) -> int:
    """Bytes of the results of a fusion; one that a dynamic-update-slice makes counts as the update, as it is made in place."""
    tuple_of = [fused.instructions[name] for name in fused.root.operands] if fused.root.opcode == "tuple" else []
    makers = tuple_of or [fused.root]
    if shape.dtype == "tuple" and not tuple_of:  # a reduction of several arrays
        return sum(sizes(array) for array in arrays(shape))
    found = 0
    for maker in makers:
        update = maker.opcode == "dynamic-update-slice"
        parts = [fused.instructions[maker.operands[1]].shape] if update else arrays(maker.shape)
        found += sum(sizes(part) for part in parts)
    return found


def parameter_bytes(module: Module, fused: Computation, parameter: Instruction, sizes: Sizes = size) -> int:
    """Bytes that a fusion reads of a parameter: its slices where it is sliced, else the whole once, however many readers share it.

    Of a tuple, each array counts as its first get-tuple-element is read; an array that nobody takes counts as the tuple's table.
    """
    found = 0
    for path in _paths(parameter.shape):
        source = parameter
        for index in path:
            takers = (user for user in fused.users[source.name] if user.opcode == "get-tuple-element" and user.index == index)
            source = next(takers, source)
        found += _read(module, fused, source, sizes)
    return found


def _paths(shape: Shape) -> list[tuple[int, ...]]:
    """Where the leaves of a shape stand: [()] for an array."""
    if shape.dtype != "tuple":
        return [()]
    return [(place, *rest) for place, part in enumerate(shape.parts) for rest in _paths(part)]


def _read(module: Module, fused: Computation, source: Instruction, sizes: Sizes) -> int:
    found, shared = 0, False
    for user in fused.users[source.name]:
        first = user.operands[0] == source.name
        if user.opcode == "fusion":
            found += _read_by_fusion(module, fused, source, user, sizes)
        elif user.opcode == "slice" or (user.opcode == "dynamic-slice" and first):
            found += sizes(user.shape)
        elif user.opcode in ("broadcast", "reshape"):
            found += sizes(source.shape)
        elif not shared and not (user.opcode == "dynamic-update-slice" and first):  # what is updated in place is not read
            shared = True
            found += sizes(source.shape)
    return found


def _read_by_fusion(module: Module, fused: Computation, source: Instruction, inner: Instruction, sizes: Sizes) -> int:
    """What a fusion within a fusion reads; one whose root works directly on the parameter is read as far as its users slice it."""
    body = module.computations[inner.callees("calls")[0]]
    found = 0
    for place in (place for place, name in enumerate(inner.operands) if name == source.name):
        parameter = body.parameters[place]
        direct = bool(body.root.operands) and body.root.operands[0] == parameter.name
        shared = False
        for user in fused.users[inner.name]:
            first = user.operands[0] == inner.name
            if direct and (user.opcode == "slice" or (user.opcode == "dynamic-slice" and first)):
                found += sizes(user.shape)
            elif shared or (direct and user.opcode == "dynamic-update-slice" and first):
                continue
            else:
                shared = True
                sliced = direct and user.opcode in ("dynamic-slice", "dynamic-update-slice")
                found += sizes(inner.shape) if sliced else _read(module, body, parameter, sizes)
    return found


def _first(indices: Sequence[Shape], sizes: Sizes) -> int:
    return sizes(indices[0]) if indices else 0


def _same_order(instruction: Instruction, operand: Shape) -> bool:
    """Whether a transpose leaves every element where it is: its layout is permuted just as its dimensions are."""
    permutation = integers(instruction, "dimensions")
    before, after = _minor_to_major(operand), _minor_to_major(instruction.shape)
    return [permutation[axis] for axis in after] == before


def _minor_to_major(shape: Shape) -> list[int]:
    order = shape.layout.split(":")[0]
    return [int(axis) for axis in order.split(",")] if order else list(range(len(shape.dims)))[::-1]
