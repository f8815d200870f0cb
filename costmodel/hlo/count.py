"""What XLA counts for each instruction of a program: its HloCostAnalysis, instruction by instruction, from the text.

A loop is its body and condition once, a conditional the maximum of its branches (of each field by itself), a call what it calls, a
fusion the arithmetic of what is fused with bytes of its own. The sum over the entry is XLA's own total, with two differences, both
intended: XLA adds in float32, so its totals of large programs are off by up to a part in 1e5, and it charges a custom call -1 FLOP
and -1 byte for "unknown". Here a custom call is nothing, and whoever sums must name it.

Source: `HloCostAnalysis` of OpenXLA, as jaxlib 0.10 runs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from costmodel.hlo.byte_rules import Sizes, fusion_bytes, moved, size
from costmodel.hlo.cost import Cost, total
from costmodel.hlo.flop_rules import arithmetic
from costmodel.hlo.module import Computation, Instruction, Module, malformed
from costmodel.hlo.pairs import phase, synchronous
from models.errors import UserError

# Opcodes of their own, with a price of their own; any other `x-start` is an asynchronous `x`, as the text abbreviates async-start of a
# computation of one x, and costs what x costs.
_NATIVE = frozenset(
    f"{operation}-{when}"
    for operation in ("all-gather", "all-reduce", "async", "collective-permute", "copy")
    for when in ("start", "update", "done")
) | {"send-done", "recv-done"}


def count(module: Module, sizes: Sizes = size) -> Mapping[tuple[str, str], Cost]:
    """XLA's cost of every instruction by (computation, instruction), with what it calls; the program's is the entry's sum.

    Args:
      sizes: bytes of an array; `hlo_bytes.padded` for what a TPU's compiler says.

    Raises:
      UserError: an opcode that isn't known, or an instruction without what its opcode needs.
    """
    costs: dict[tuple[str, str], Cost] = {}
    sums: dict[str, Cost] = {}
    for computation in module.computations.values():  # callees come first
        for instruction in computation.instructions.values():
            try:
                costs[computation.name, instruction.name] = _cost(module, computation, instruction, sums, sizes)
            except (LookupError, ValueError, ArithmeticError) as error:
                raise error if isinstance(error, UserError) else malformed(instruction) from error
        sums[computation.name] = total(costs[computation.name, name] for name in computation.instructions)
    return costs


def _cost(module: Module, computation: Computation, instruction: Instruction, sums: Mapping[str, Cost], sizes: Sizes) -> Cost:
    when = "" if instruction.opcode in _NATIVE else phase(instruction)[1]
    operands = [computation.instructions[name].shape for name in instruction.operands]
    if instruction.opcode == "async-start":
        return sums[instruction.callees("calls")[0]]
    if when == "start":
        instruction = synchronous(module, instruction)
    elif when:
        instruction = dataclasses.replace(instruction, opcode=f"async-{when}")
    opcode = instruction.opcode
    if opcode == "while":
        return sums[instruction.callees("body")[0]] + sums[instruction.callees("condition")[0]]
    if opcode == "conditional":
        branches = [sums[name] for name in instruction.callees()]
        maximum = branches[0]
        for branch in branches[1:]:
            maximum = maximum.at_least(branch)
        return maximum
    if opcode == "call":
        return sums[instruction.callees()[0]]
    if opcode == "custom-call":
        return Cost()
    if opcode == "fusion":
        return _fusion(module, instruction, sums, sizes)
    work = arithmetic(instruction, operands, sums.__getitem__)
    return Cost(work.flops, moved(instruction, operands, sizes), work.transcendentals)


def _fusion(module: Module, fusion: Instruction, sums: Mapping[str, Cost], sizes: Sizes) -> Cost:
    fused = module.computations[fusion.callees("calls")[0]]
    if fusion.attributes.get("kind") == "kCustom":  # a custom fusion of a gather or scatter costs that one and nothing else
        for inner in fused.instructions.values():
            if inner.opcode in ("gather", "scatter"):
                return _cost(module, fused, inner, sums, sizes)
    work = sums[fused.name]
    return Cost(work.flops, fusion_bytes(module, fusion, sizes), work.transcendentals)
