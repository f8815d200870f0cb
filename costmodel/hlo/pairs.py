"""Asynchronous pairs: `copy-start` and `copy-done` are one copy, `all-gather-start` and `-done` one all-gather.

The work belongs to the start, which names the operands; update and done only wait. XLA prints any operation that way (`slice-start`,
`reduce-scatter-start`, ...), or as `async-start` with the operation in a computation of its own.
"""

from __future__ import annotations

import dataclasses

from costmodel.hlo.module import Instruction, Module


def phase(instruction: Instruction) -> tuple[str, str]:
    """(opcode of the operation, "start", "update", "done", or "" where it isn't asynchronous): ("copy", "start") of a copy-start."""
    for name in ("start", "update", "done"):
        if instruction.opcode.endswith("-" + name):
            return instruction.opcode.removesuffix("-" + name), name
    return instruction.opcode, ""


def result_path(operation: str) -> tuple[int, ...]:
    """Where the result stands in the tuple that a start of the operation gives: usually (operands, result, context)."""
    return {"all-reduce": (), "copy": (0,)}.get(operation, (1,))


def synchronous(module: Module, instruction: Instruction) -> Instruction:
    """The operation that a start stands for, under the start's name and with its operands; any other instruction as it is."""
    operation, when = phase(instruction)
    if when != "start":
        return instruction
    if operation == "async":
        inner = module.computations[instruction.callees("calls")[0]].root
        label = inner.op_name or instruction.op_name
        return dataclasses.replace(inner, name=instruction.name, operands=instruction.operands, op_name=label, root=False)
    shape = instruction.shape
    for index in result_path(operation):
        shape = shape.parts[index]
    return dataclasses.replace(instruction, opcode=operation, shape=shape)
