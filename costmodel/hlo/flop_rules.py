"""FLOPs and transcendentals of one instruction, by the rules of XLA's HloCostAnalysis.

Source: `HloCostAnalysis` of OpenXLA, as jaxlib 0.10 runs it; its rules are reproduced, not judged (an all-reduce, for instance,
is one FLOP an element whatever the number of devices).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence

from costmodel.hlo.cost import Cost
from costmodel.hlo.module import Instruction, Shape
from models.errors import UserError

# One evaluation an element, and no FLOP.
TRANSCENDENTAL = frozenset(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one logistic power "
    "rng rng-bit-generator rsqrt sine sinh sqrt tan tanh".split()
)
# One FLOP an element of the result, integers, comparisons and conversions too.
ELEMENTWISE = frozenset(
    "abs add and bitcast-convert ceil clamp compare complex convert count-leading-zeros divide floor imag is-finite maximum "
    "minimum multiply negate not or popcnt real reduce-precision remainder round-nearest-afz round-nearest-even select "
    "shift-left shift-right-arithmetic shift-right-logical sign stochastic-convert subtract xor all-reduce all-reduce-start".split()
)
# No arithmetic: they move data, order execution, or only give it another name.
MOVES = frozenset(
    "add-dependency after-all all-gather all-gather-done all-gather-start all-reduce-done all-to-all async-done async-update "
    "batch-norm-grad batch-norm-inference batch-norm-training bitcast broadcast collective-broadcast collective-permute "
    "collective-permute-done collective-permute-start concatenate constant copy copy-done copy-start domain dynamic-reshape "
    "dynamic-slice dynamic-update-slice gather get-dimension-size get-tuple-element infeed iota opt-barrier outfeed pad parameter "
    "partition-id ragged-all-to-all recv recv-done reduce-scatter replica-id reshape reverse rng-get-and-update-state send "
    "send-done set-dimension-size slice topk transpose tuple".split()
)


def arithmetic(instruction: Instruction, operands: Sequence[Shape], applied: Callable[[str], Cost]) -> Cost:
    """FLOPs and transcendentals (no bytes) of an instruction that is no control flow, fusion or custom call.

    Args:
      operands: shapes of the operands.
      applied: the cost of one run of a computation that the instruction applies to its elements.

    Raises:
      UserError: an opcode that isn't known, so its cost isn't either.
    """
    opcode, shape = instruction.opcode, instruction.shape
    if opcode in TRANSCENDENTAL:
        return Cost(transcendentals=shape.elements)
    if opcode in ELEMENTWISE:
        return Cost(flops=shape.elements)
    if opcode in MOVES:
        return Cost()
    if opcode == "dot":
        contracted = (operands[0].dims[axis] for axis in integers(instruction, "lhs_contracting_dims"))
        return Cost(flops=2 * shape.elements * math.prod(contracted))
    if opcode == "convolution":
        return Cost(flops=_convolution(instruction, operands))
    if opcode == "sort":
        elements = operands[0].elements
        return Cost(flops=elements * max(elements - 1, 0).bit_length())  # n ceil(log2 n)
    if opcode == "fft":
        logarithms = math.prod(length.bit_length() - 1 for length in integers(instruction, "fft_length"))
        return Cost(flops=8 * logarithms * operands[0].elements)
    if opcode == "triangular-solve":
        return Cost(flops=2 * operands[0].dims[-1] * operands[1].elements)
    if opcode == "cholesky":
        return Cost(flops=operands[0].dims[-1] * operands[0].elements // 3)
    if opcode == "select-and-scatter":
        windows = math.prod(axis.size for axis in window(instruction)) - 1
        select, scatter = (applied(instruction.callees(key)[0]) for key in ("select", "scatter"))
        return _only_arithmetic(select * (operands[1].elements * windows) + scatter * operands[1].elements)
    if opcode in ("map", "reduce", "reduce-window", "scatter"):
        return _only_arithmetic(applied(instruction.callees("to_apply")[0]) * _applications(instruction, operands))
    raise UserError(
        f"HLO opcode {opcode!r} of {instruction.name!r} is not known; compile with jax 0.9 or 0.10, or add its cost"
    )


def integers(instruction: Instruction, key: str) -> tuple[int, ...]:
    """The numbers in an attribute such as dimensions={0,1}; () without it."""
    return tuple(int(digits) for digits in re.findall(r"-?\d+", instruction.attributes.get(key, "")))


@dataclasses.dataclass(frozen=True, slots=True)
class WindowAxis:
    """One dimension of a window; dilations are distances between elements of the input (`base`) and of the kernel."""

    size: int
    stride: int
    low: int
    high: int
    base: int
    kernel: int


def window(instruction: Instruction) -> tuple[WindowAxis, ...]:
    """The axes of window={size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=1x1 rhs_dilate=1x1}; () without one."""
    fields = dict(re.findall(r"(\w+)=([\d_x\-]+)", instruction.attributes.get("window", "")))
    if "size" not in fields:
        return ()
    sizes = [int(size) for size in fields["size"].split("x")]

    def values(key: str) -> list[int]:
        return [int(value) for value in fields[key].split("x")] if key in fields else [1] * len(sizes)

    pads = (
        [[int(side) for side in pad.split("_")] for pad in fields["pad"].split("x")]
        if "pad" in fields
        else [[0, 0]] * len(sizes)
    )
    rows = zip(sizes, values("stride"), pads, values("lhs_dilate"), values("rhs_dilate"), strict=True)
    return tuple(WindowAxis(size, stride, low, high, base, kernel) for size, stride, (low, high), base, kernel in rows)


def _only_arithmetic(cost: Cost) -> Cost:
    return Cost(cost.flops, 0, cost.transcendentals)


def _applications(instruction: Instruction, operands: Sequence[Shape]) -> int:
    """How often a map, reduce, reduce-window or scatter runs its function."""
    opcode, shape = instruction.opcode, instruction.shape
    result = shape.parts[0] if shape.dtype == "tuple" else shape  # of several arrays: the function itself works on all of them
    if opcode == "map":
        return result.elements
    if opcode == "scatter":
        return operands[len(operands) // 2 + 1].elements  # n operands, the indices, n updates
    if opcode == "reduce":
        return operands[0].elements - result.elements
    axes = window(instruction)
    wide = [axis for axis in axes if axis.size != 1]
    padded = [axis for axis in axes if axis.low or axis.high]
    # A window over a whole axis that gives the sum in each place is counted as a reduction and a broadcast.
    for place, axis in enumerate(axes):
        whole = axis.size != 1 and axis.low == axis.high != 0 and axis.size == 2 * axis.low + 1
        if whole and len(wide) == len(padded) == 1 and shape.dtype != "tuple" and axis.low == shape.dims[place] - 1:
            return result.elements // shape.dims[place] + shape.dims[place] - 1
    return result.elements * (math.prod(axis.size for axis in axes) - 1)


def _convolution(instruction: Instruction, operands: Sequence[Shape]) -> int:
    """Twice the multiplications that meet an element of the input, neither padding nor a hole of a dilation."""
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", instruction.attributes["dim_labels"])
    if labels is None:
        raise UserError(
            f"dim_labels={instruction.attributes['dim_labels']} of {instruction.name!r} is not of the form bf0_io0->bf0"
        )
    left, right, out = labels.groups()
    source, kernel, result = operands[0].dims, operands[1].dims, instruction.shape.dims
    positions = 1
    for place, axis in enumerate(window(instruction)):
        label = str(place)
        sizes = source[left.index(label)], kernel[right.index(label)], result[out.index(label)]
        positions *= _valid_positions(axis, *sizes)
    groups = [int(instruction.attributes.get(key, "1")) for key in ("feature_group_count", "batch_group_count")]
    features, batch = source[left.index("f")] // groups[0], source[left.index("b")] // groups[1]
    return 2 * features * result[out.index("f")] * batch * positions


def _valid_positions(axis: WindowAxis, source: int, kernel: int, result: int) -> int:
    """Pairs of kernel index k and result index o that read an element: stride o + dilation k - low = base i, 0 <= i < source."""
    divisor = math.gcd(axis.stride, axis.base)
    period = axis.base // divisor
    inverse = pow(axis.stride // divisor, -1, period) if period > 1 else 0
    found = 0
    for k in range(kernel):
        start = axis.kernel * k - axis.low
        if start % divisor:
            continue
        first = (
            -(start // divisor) * inverse % period
        )  # the smallest o >= 0 that hits no hole; the next ones follow by `period`
        lowest = max(0, -(start // axis.stride))
        highest = min(result - 1, (axis.base * (source - 1) - start) // axis.stride)
        first += -(-max(lowest - first, 0) // period) * period
        found += max(0, (highest - first) // period + 1)
    return found
