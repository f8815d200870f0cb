"""What a fusion really touches of its parameters and results: the slices, the gathered rows, the updates.

A fusion computes what its result needs, element by element. So a parameter that only slices or gathers read, if need be behind conversions
and other passes over single elements, moves as many elements as they give; and a result that is an update of a parameter in place
moves the update. What a fusion only hands on moves nothing: a result that it declares to be an operand, or the buffer of a collective that
goes on beside its work (TPU). Anything else moves the whole array, once, however many readers it has inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from costmodel.hlo.module import Computation, Instruction, Module
from costmodel.ledger.provenance import COLLECTIVES, UPDATES, aliases

# One element of the result for one of the operand, so that a slice behind them needs only its own elements.
_PASSES = frozenset({"bitcast", "bitcast-convert", "convert", "copy", "reshape", "transpose"})
_SLICES = frozenset({"slice", "dynamic-slice", "gather"})


@dataclasses.dataclass(frozen=True, slots=True)
class FusionAccess:
    """Bytes moved of a parameter or result, and why not the whole: "gather", "slice", "update", "handed on"; "" for the whole."""

    bytes: int
    why: str = ""


def parameter_touched(module: Module, fusion: Instruction, number: int) -> FusionAccess:
    """What a fusion reads of its operand `number`."""
    fused = module.computations[fusion.callees("calls")[0]]
    source, handed_on = fused.parameters[number], aliases(fusion)
    if source.shape.dtype == "tuple" or not source.shape.elements:
        return FusionAccess(source.shape.bytes)
    width, found, whys = source.shape.bytes / source.shape.elements, 0.0, set()
    for reader, holder, place in _element_readers(module, [(fused, source)]):
        if reader is None or reader.opcode in COLLECTIVES:
            if reader is None and handed_on.get((place,) if fused.root.opcode == "tuple" else ()) != number:
                return FusionAccess(source.shape.bytes)
            whys.add("handed on")
        elif place == 0 and reader.opcode in _SLICES:
            found += width * reader.shape.elements
            whys.add("gather" if reader.opcode == "gather" else "slice")
        elif place == 0 and _in_place(module, holder, reader, source):
            whys.add("update")
            if combines(module, reader):
                found += width * sum(holder.instructions[name].shape.elements for name in _updates(reader))
        else:
            return FusionAccess(source.shape.bytes)
    return FusionAccess(round(found), next((why for why in ("gather", "slice", "update", "handed on") if why in whys), "slice"))


def result_touched(module: Module, fusion: Instruction, path: tuple[int, ...]) -> FusionAccess:
    """What a fusion writes of the result at `path` of its tuple."""
    fused = module.computations[fusion.callees("calls")[0]]
    root, shape = fused.root, fused.root.shape
    for index in path:
        shape = shape.parts[index]
    for index in path if root.opcode == "tuple" else ():
        root = fused.instructions[root.operands[index]]
    moved, base = _updated(module, fused, root)
    if moved and base.opcode == "parameter":
        return FusionAccess(moved, "update")
    return FusionAccess(0, "handed on") if path in aliases(fusion) else FusionAccess(shape.bytes)


def combines(module: Module, update: Instruction) -> bool:
    """Whether an update needs what it overwrites: a scatter that adds, not one that sets."""
    if update.opcode != "scatter":
        return False
    applied = module.computations[update.callees("to_apply")[0]]
    root = applied.root
    while root.opcode in _PASSES:
        root = applied.instructions[root.operands[0]]
    return not (root.opcode == "parameter" and root.index == len(applied.parameters) // 2)


def _updates(update: Instruction) -> tuple[str, ...]:
    return update.operands[1:2] if update.opcode == "dynamic-update-slice" else update.operands[len(update.operands) // 2 + 1 :]


def _element_readers(
    module: Module, stack: list[tuple[Computation, Instruction]]
) -> Iterator[tuple[Instruction | None, Computation, int]]:
    """The readers of a value behind passes and inner fusions: (reader, its computation, operand number); None for the way out.

    `stack` is the value in the innermost computation; below it, the fusion in each computation around that it is inside of.
    """
    computation, value = stack[-1]
    if computation.root is value:
        if len(stack) == 1:
            yield None, computation, 0
        else:
            yield from _element_readers(module, stack[:-1])
    for user in computation.users[value.name]:
        for place in [k for k, name in enumerate(user.operands) if name == value.name]:
            if user.opcode in _PASSES:
                yield from _element_readers(module, [*stack[:-1], (computation, user)])
            elif user.opcode == "fusion":
                inner = module.computations[user.callees("calls")[0]]
                yield from _element_readers(module, [*stack[:-1], (computation, user), (inner, inner.parameters[place])])
            elif user.opcode == "tuple" and user.root and len(stack) == 1:
                yield None, computation, place
            else:
                yield user, computation, place


def _in_place(module: Module, computation: Computation, update: Instruction, source: Instruction) -> bool:
    """Whether an update works on the parameter itself, and what it makes leaves the fusion as its result."""
    if update.opcode not in UPDATES or not update.shape.same_data(source.shape):
        return False
    if _updated(module, computation, update)[1].opcode != "parameter":
        return False
    value = update
    while not value.root:
        onward = [
            u
            for u in computation.users[value.name]
            if u.opcode in ("bitcast", "tuple", *UPDATES) and u.operands.count(value.name)
        ]
        onward = [u for u in onward if u.opcode != "tuple" or u.root]
        if not onward:
            return False
        value = onward[0]
    return True


def _updated(module: Module, computation: Computation, value: Instruction) -> tuple[int, Instruction]:
    """(bytes of the updates that a value consists of, what they were made to), behind bitcasts, rows of updates and inner fusions."""
    if value.opcode == "bitcast":
        return _updated(module, computation, computation.instructions[value.operands[0]])
    if value.opcode in UPDATES and value.shape.dtype != "tuple":
        moved, base = _updated(module, computation, computation.instructions[value.operands[0]])
        return moved + sum(computation.instructions[name].shape.bytes for name in _updates(value)), base
    if value.opcode == "fusion" and value.shape.dtype != "tuple":
        inner = module.computations[value.callees("calls")[0]]
        moved, base = _updated(module, inner, inner.root)
        if moved and base.opcode == "parameter":
            outer, base = _updated(module, computation, computation.instructions[value.operands[base.index]])
            return moved + outer, base
    return 0, value
