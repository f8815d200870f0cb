"""Prices of custom calls: lines as compilers for an H100, a v5e and a CPU printed them (jax 0.10.2), against arithmetic on their shapes.

For the TPU kernel with an estimate there is XLA's own count as well: it took 123456 FLOPs and 7890 B for it.
"""

from __future__ import annotations

import pytest

from costmodel.ledger.custom_calls import CUSTOM_CALLS, Price
from costmodel.ledger.ledger import ledger
from models.errors import UserError


def entry(lines: str) -> str:
    return f"HloModule m, is_scheduled=true\n\nENTRY %main {{\n{lines}\n}}\n"


def gemm(
    result: str,
    operands: dict[str, str],
    target: str = "__cublas$lt$matmul",
    batch: str = "",
    contracting: str = '"1"',
    right: str = '"0"',
):
    parameters = "\n".join(f"  %{name} = {shape} parameter({k})" for k, (name, shape) in enumerate(operands.items()))
    names = ", ".join(f"%{name}" for name in operands)
    config = (
        '{"operation_queue_id":"0","gemm_backend_config":{"selected_algorithm":"0","alpha_real":1,"beta":0,"dot_dimension_numbers":'
        f'{{"lhs_contracting_dimensions":[{contracting}],"rhs_contracting_dimensions":[{right}],"lhs_batch_dimensions":[{batch}],'
        f'"rhs_batch_dimensions":[{batch}]}},"epilogue":"DEFAULT","autotune_workspace_size":"4194304"}}}}'
    )
    call = (
        f'  %gemm = ({result}, s8[4194304]{{0}}) custom-call({names}), custom_call_target="{target}", backend_config={config}'
    )
    return entry(f"{parameters}\n{call}\n  ROOT %out = {result} get-tuple-element(%gemm), index=0")


def test_cublas_matmul():
    """2 m n k; operands and result once; the 4 MiB of workspace are no traffic, and XLA's 0 is named."""
    book = ledger(gemm("bf16[64,2048]{1,0}", {"x": "bf16[64,4096]{1,0}", "w": "bf16[4096,2048]{1,0}"}))
    assert book.reported.flops == 0 and book.reported.bytes == 0
    assert book.traffic.flops == 2 * 64 * 4096 * 2048
    assert book.traffic.bytes == 2 * (64 * 4096 + 4096 * 2048 + 64 * 2048)
    assert book.unpriced == ()


def test_cublas_matmul_and_bias_that_public_counts_get_wrong():
    """bf16 (2, 73) @ (73, 256) plus bias, padded to (8, 80) @ (80, 256) for cuBLAS: neither -1 nor off by one."""
    operands = {"x": "bf16[8,80]{1,0}", "w": "bf16[80,256]{1,0}", "b": "bf16[256]{0}"}
    book = ledger(gemm("bf16[8,256]{1,0}", operands))
    assert book.traffic.flops == 2 * 8 * 80 * 256
    assert book.traffic.bytes == 2 * (8 * 80 + 80 * 256 + 256 + 8 * 256)


def test_batched_and_fp8_matmuls():
    batched = gemm(
        "f32[8,4,16]{2,1,0}", {"q": "f32[8,4,32]{2,1,0}", "k": "f32[8,16,32]{2,1,0}"}, "__cublas$gemm", '"0"', '"2"', '"2"'
    )
    assert ledger(batched).traffic.flops == 2 * 8 * 4 * 16 * 32
    operands = {"x": "f8e4m3fn[64,128]{1,0}", "w": "f8e4m3fn[256,128]{1,0}", "sx": "f32[]", "sw": "f32[]"}
    eight = ledger(gemm("f32[64,256]{1,0}", operands, "__cublas$lt$matmul$f8", right='"1"'))
    assert eight.traffic.flops == 2 * 64 * 128 * 256
    assert eight.traffic.bytes == 64 * 128 + 256 * 128 + 8 + 4 * 64 * 256


def test_cudnn_convolution():
    """3 x 3 over 32 x 32, padded: some taps at the rim fall outside, (3 * 32 - 2)^2 are left; 64 channels to 128, 8 images."""
    book = ledger(
        entry(
            """  %x = bf16[8,32,32,64]{3,2,1,0} parameter(0)
  %w = bf16[128,3,3,64]{3,2,1,0} parameter(1)
  %conv = (bf16[8,32,32,128]{3,2,1,0}, u8[0]{0}) custom-call(%x, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, \
custom_call_target="__cudnn$convForward", backend_config={"cudnn_conv_backend_config":{"activation_mode":"kNone"}}
  ROOT %y = bf16[8,32,32,128]{3,2,1,0} get-tuple-element(%conv), index=0"""
        )
    )
    assert book.traffic.flops == 2 * 8 * 64 * 128 * (3 * 32 - 2) ** 2
    assert book.traffic.bytes == 2 * (8 * 32 * 32 * 64 + 128 * 9 * 64 + 8 * 32 * 32 * 128)


def attention(extra: str = "") -> str:
    dims = (
        '"bmm1_dot_dimension_numbers":{"lhs_contracting_dimensions":["3"],"rhs_contracting_dimensions":["3"],'
        '"lhs_batch_dimensions":["0","2"],"rhs_batch_dimensions":["0","2"]}'
    )
    return entry(
        f"""  %q = bf16[4,256,8,64]{{3,2,1,0}} parameter(0)
  %k = bf16[4,512,8,64]{{3,2,1,0}} parameter(1)
  %v = bf16[4,512,8,64]{{3,2,1,0}} parameter(2)
  %a = (bf16[4,8,256,64]{{3,1,2,0}}, u8[1024]{{0}}) custom-call(%q, %k, %v), custom_call_target="__cudnn$fmhaSoftmax", \
backend_config={{"cudnn_fmha_backend_config":{{{extra}{dims}}}}}
  ROOT %y = bf16[4,8,256,64]{{3,1,2,0}} get-tuple-element(%a), index=0"""
    )


def test_cudnn_attention():
    """4 sequences of 8 heads: 256 queries by 512 keys of 64, twice; one exp a score. Over pages it isn't known what is read."""
    book = ledger(attention())
    scores = 4 * 8 * 256 * 512
    assert book.traffic.flops == 2 * 2 * scores * 64
    assert book.traffic.transcendentals == scores
    assert book.traffic.bytes == 2 * 64 * 4 * 8 * (2 * 256 + 2 * 512)
    assert ledger(attention('"is_paged_attention":true,')).unpriced == ("a (__cudnn$fmhaSoftmax)",)


def test_top_k():
    """32 rows of 128256 are read, 40 values and indices of each written; at least one comparison an element."""
    book = ledger(
        entry(
            """  %x = f32[32,128256]{1,0} parameter(0)
  ROOT %top = (f32[32,40]{1,0}, s32[32,40]{1,0}) custom-call(%x), custom_call_target="TopK\""""
        )
    )
    assert book.traffic.bytes == 4 * 32 * (128256 + 2 * 40)
    assert book.traffic.flops == 32 * 128256
    assert book.lines[-1].confidence == "bound"


@pytest.mark.parametrize("flags", ["", '"transpose_a":true'])
def test_onednn_matmul(flags):
    """The inner length follows from the element counts, whichever operand is transposed; one matrix may serve a whole batch."""
    left = "f32[8,64,32]{2,1,0}" if not flags else "f32[8,32,64]{2,1,0}"
    text = """  %a = {left} parameter(0)
  %b = {right} parameter(1)
  ROOT %y = f32[8,64,16]{{2,1,0}} custom-call(%a, %b), custom_call_target="__onednn$matmul", \
backend_config={{"onednn_matmul_config":{{{flags}}}}}"""
    for right in ("f32[8,32,16]{2,1,0}", "f32[32,16]{1,0}"):
        assert ledger(entry(text.format(left=left, right=right, flags=flags))).traffic.flops == 2 * 8 * 64 * 32 * 16


MOSAIC = """  %x = f32[256,512]{{1,0:T(8,128)}} parameter(0)
  ROOT %my_kernel.1 = f32[256,512]{{1,0:T(8,128)}} custom-call(%x), custom_call_target="tpu_custom_call", \
metadata={{op_name="jit(f)/scores/my_kernel/pallas_call"}}, \
backend_config={{"flag_configs":[],"custom_call_config":{{"body":"TUzvUg=="{cost}}}}}"""
COST = ', "cost_estimate": {"flops": 123456, "transcendentals": 11, "bytes_accessed": 1000000}'


def test_a_pallas_kernel_on_a_tpu_has_the_price_of_its_estimate():
    """pl.CostEstimate(flops=123456, bytes_accessed=1e6, transcendentals=11): results first, 512 KiB, and the rest is read."""
    book = ledger(entry(MOSAIC.format(cost=COST)), scopes={"scores": "scores", "my_kernel": None})
    cost = book.by_component()["scores"]
    assert (cost.flops, cost.bytes, cost.transcendentals) == (123456, 1000000, 11)
    ways = {item.direction: item.bytes for item in book.lines[-1].traffic.items}
    assert ways == {"write": 4 * 256 * 512, "read": 1000000 - 4 * 256 * 512}


def test_an_unknown_kernel_is_named_and_never_zero_in_silence():
    """A Pallas kernel without an estimate: totals are at least what the rest is, the line is unknown, and the name is said."""
    book = ledger(entry(MOSAIC.format(cost="")))
    assert book.unpriced == ("my_kernel.1 (tpu_custom_call)",)
    assert book.lines[-1].confidence == "unknown"
    assert book.lines[-1].notes == ("my_kernel.1 (tpu_custom_call) has no price",)
    assert book.traffic.flops >= 0 and book.reported.flops >= 0  # XLA's -1 is nowhere


def test_a_caller_prices_kernels_of_its_own():
    """By the name that a Triton kernel carries, or by the target; the price in reads is shared out by the size of the operands."""
    lines = """  %q = bf16[8,64]{1,0} parameter(0)
  %pool = bf16[1000,64]{1,0} parameter(1)
  ROOT %o = bf16[8,64]{1,0} custom-call(%q, %pool), custom_call_target="__gpu$xla.gpu.triton", \
backend_config={name = "paged_attention", ir = "ML\\EFR", num_warps = 4 : i32, grid_x = 8 : i32}"""
    assert ledger(entry(lines)).unpriced == ("o (__gpu$xla.gpu.triton)",)
    for key in ("paged_attention", "__gpu$xla.gpu.triton"):
        registry = {**CUSTOM_CALLS, key: lambda call: Price(4 * call.operands[0].elements, bytes=10_000)}
        book = ledger(entry(lines), custom_calls=registry)
        assert (book.traffic.flops, book.traffic.bytes, book.unpriced) == (4 * 8 * 64, 10_000, ())
        reads = {item.bytes for item in book.lines[-1].traffic.items if item.direction == "read"}
        assert sum(reads) == 10_000 - 2 * 8 * 64


@pytest.mark.parametrize("price", [Price(-1), Price(1, bytes=-5), Price(float("nan"))])
def test_a_price_must_be_a_number_from_0_on(price):
    with pytest.raises(UserError, match="return None for unknown"):
        ledger(entry(MOSAIC.format(cost="")), custom_calls={"tpu_custom_call": lambda call: price})


def test_a_kernel_that_updates_its_operand_in_place_is_the_state():
    """output_to_operand_aliasing: the pool that a kernel writes to and gives back is state, and its price is not spent on writing it."""
    book = ledger(
        entry(
            """  %row = bf16[1,64]{1,0} parameter(0)
  %pool = bf16[1000,64]{1,0} parameter(1)
  ROOT %new = bf16[1000,64]{1,0} custom-call(%row, %pool), custom_call_target="write_page", output_to_operand_aliasing={{}: (1, {})}"""
        ),
        custom_calls={"write_page": lambda call: Price(0, bytes=256)},
    )
    assert book.traffic.bytes == 256
    assert {item.kind for item in book.lines[-1].traffic.items if item.bytes > 10} == {"kv"}


def test_annotations_cost_nothing():
    book = ledger(
        entry(
            """  %i = s32[8]{0:T(128)} parameter(0)
  ROOT %same = s32[8]{0:T(128)} custom-call(%i), custom_call_target="AssumeGatherIndicesInBound\""""
        )
    )
    assert (book.traffic.bytes, book.unpriced) == (0, ())
