"""Prices of custom calls: kernels that the compiler calls by name, so that its text does not say what they do.

XLA counts one as -1 or as nothing. Here each is priced from its shapes and its `backend_config`, and one that can't be is unknown: the
ledger names it and says "at least". The registry is a mapping from a target, or a kernel's own name, to a function; to price kernels of
your own, pass a larger one::

    ledger(compiled, custom_calls={**CUSTOM_CALLS, "my_attention": lambda call: Price(flops=..., bytes=...)})

| target | source of the price |
|---|---|
| cuBLAS gemm and lt matmul, fp8 too | 2 m n k from the dot dimension numbers in backend_config |
| cuDNN convolution (forward) and attention (forward, not paged) | window and dim_labels; dimension numbers of its two products |
| Mosaic (Pallas on TPU) | `pl.CostEstimate` of the kernel, which backend_config carries; unknown without one |
| Triton and Mosaic GPU (Pallas on GPU) | none: JAX drops the estimate on the way, so register the kernel's name |
| TopK | reads its operand, at least one comparison an element |
| oneDNN | shapes; a matmul's inner length from the element counts, whichever operand is transposed |

YNNPACK, XNNPACK and Triton *fusions* are no custom calls: their text holds what they compute, and they are priced like any fusion.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from costmodel.hlo.byte_rules import arrays
from costmodel.hlo.flop_rules import arithmetic
from costmodel.hlo.module import Instruction, Shape
from models.errors import UserError
from models.files.json_text import parse_json


@dataclasses.dataclass(frozen=True, slots=True)
class Price:
    """What one run of a custom call does, on one device.

    Attributes:
      flops, transcendentals: arithmetic.
      bytes: memory traffic, read and written. None: every operand is read and every result written, whole, once.
      scratch: numbers of the results that are only workspace, which are not traffic.
      bound: the figures are a lower bound.
    """

    flops: float
    bytes: float | None = None
    transcendentals: float = 0
    scratch: tuple[int, ...] = ()
    bound: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A custom call as a pricing function sees it. `config` is its backend_config, {} where that is not a JSON object."""

    target: str
    kernel: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    config: Mapping[str, Any]
    instruction: Instruction


Pricer: TypeAlias = Callable[[Call], Price | None]  # None: unknown after all


def read_call(instruction: Instruction, operands: Sequence[Shape]) -> Call:
    """Read a custom-call instruction. `kernel` is the name that a Triton or Pallas kernel gave, or else the instruction's own."""
    text = _unquoted(instruction.attributes.get("backend_config", ""))
    try:
        config = parse_json(text, strict=False)
    except UserError:
        config = {}
    named = re.search(r'\bname\s*=\s*"([^"]+)"', text) or re.search(
        r'"?kernel_name"?[=:]\s*"([^"]+)"', str(instruction.attributes)
    )
    kernel = named[1] if named else re.sub(r"(\.\d+)+$", "", instruction.name)
    target = _unquoted(instruction.attributes.get("custom_call_target", ""))
    results = tuple(arrays(instruction.shape))
    return Call(target, kernel, tuple(operands), results, config if isinstance(config, dict) else {}, instruction)


def price(call: Call, registry: Mapping[str, Pricer]) -> Price | None:
    """The price by the kernel's name or else by the target; None where neither is registered, or its function does not know.

    Raises:
      UserError: a registered function gives a price that is negative or no number.
    """
    pricer = registry.get(call.kernel) or registry.get(call.target)
    found = pricer(call) if pricer else None
    for name in ("flops", "bytes", "transcendentals") if found else ():
        value = getattr(found, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            who = f"custom call {call.target!r} (kernel {call.kernel!r})"
            raise UserError(
                f"{who}: its registered price has {name}={value}; give a number from 0 on, or return None for unknown"
            )
    return found


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _nothing(call: Call) -> Price:
    """Annotations and views: TPU buffers that are only named, hints on indices, sharding marks."""
    return Price(0, bytes=0)


def _moves(call: Call) -> Price:
    return Price(0)


def _gemm(call: Call) -> Price | None:
    config = call.config.get("gemm_backend_config", call.config)
    axes = config.get("dot_dimension_numbers", {}).get("lhs_contracting_dimensions")
    if axes is None or not call.results:
        return None
    inner = math.prod(call.operands[0].dims[int(axis)] for axis in axes)
    return Price(2 * call.results[0].elements * inner, scratch=_workspace(call))


def _workspace(call: Call) -> tuple[int, ...]:
    """Results that are bytes beside a result of numbers: what cuBLAS and cuDNN calculate in."""
    return tuple(k for k, result in enumerate(call.results) if k and result.dtype in ("s8", "u8") and len(result.dims) == 1)


def _convolution(call: Call) -> Price:
    plain = dataclasses.replace(call.instruction, opcode="convolution", shape=call.results[0])

    def applied(name: str) -> Any:
        raise UserError(f"convolution {call.instruction.name!r} applies a computation {name!r}; none is expected")

    return Price(arithmetic(plain, call.operands[:2], applied).flops, scratch=_workspace(call))


def _attention(call: Call) -> Price | None:
    """softmax(q k^T) v as two products; with a mask the kernel may skip up to half of them, so it is what is asked, not done."""
    config = call.config.get("cudnn_fmha_backend_config", {})
    first = config.get("bmm1_dot_dimension_numbers", {})
    if config.get("is_paged_attention") or not first or len(call.operands) < 3:
        return None
    q, k = call.operands[:2]
    spent = {int(axis) for key in ("rhs_contracting_dimensions", "rhs_batch_dimensions") for axis in first.get(key, ())}
    inner = math.prod(q.dims[int(axis)] for axis in first["lhs_contracting_dimensions"])
    keys = math.prod(size for axis, size in enumerate(k.dims) if axis not in spent)
    products = 2 * keys * (q.elements + call.results[0].elements)
    return Price(products, transcendentals=keys * q.elements // inner, scratch=_workspace(call))


def _mosaic(call: Call) -> Price | None:
    estimate = call.config.get("custom_call_config", {}).get("cost_estimate")
    if not estimate:
        return None
    flops, moved, transcendentals = (float(estimate.get(key, 0)) for key in ("flops", "bytes_accessed", "transcendentals"))
    return Price(flops, bytes=moved, transcendentals=transcendentals)


def _top_k(call: Call) -> Price:
    return Price(call.operands[0].elements, bound=True)


def _onednn_matmul(call: Call) -> Price | None:
    if len(call.operands) < 2 or not call.results or len(call.results[0].dims) < 2:
        return None
    left, right, out = call.operands[0], call.operands[1], call.results[0]
    batch = math.prod(out.dims[:-2]) if len(right.dims) == len(out.dims) else 1
    if len(right.dims) < len(out.dims):  # one matrix for all: the batch belongs to the rows
        return Price(2 * left.elements * out.dims[-1], scratch=_workspace(call))
    inner = math.isqrt(left.elements * right.elements // (out.elements * batch))  # m k * k n / (m n), per batch
    return Price(2 * out.elements * inner, scratch=_workspace(call))


def _elementwise(call: Call) -> Price:
    return Price(call.operands[0].elements, bound=True)


CUSTOM_CALLS: Mapping[str, Pricer] = {
    **dict.fromkeys(("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"), _gemm),
    **dict.fromkeys(("__cudnn$convForward", "__cudnn$convBiasActivationForward", "__cudnn$convForwardGraph"), _convolution),
    **dict.fromkeys(("__cudnn$fmhaSoftmax", "__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaSoftmaxF8"), _attention),
    "tpu_custom_call": _mosaic,
    **dict.fromkeys(("TopK", "__gpu$TopK"), _top_k),
    "__onednn$matmul": _onednn_matmul,
    **dict.fromkeys(("__onednn$softmax", "__onednn$layernorm"), _elementwise),
    **dict.fromkeys(
        ("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound", "GatherScatterIndicesBitpacked"), _nothing
    ),
    **dict.fromkeys(("AsyncCollectiveStart", "AsyncCollectiveDone"), _nothing),
    **dict.fromkeys(("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint"), _nothing),
    **dict.fromkeys(("PadToStatic", "SliceToDynamic", "__onednn$matmul_reorder"), _moves),
}
