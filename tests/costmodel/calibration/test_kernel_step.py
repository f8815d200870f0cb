"""A step as the sum of its kernels. Oracles: the model's matrices by hand, and each kernel asked by itself."""

from __future__ import annotations

import math

import pytest

from costmodel.arch.catalog import find_architecture
from costmodel.calibration.calibration import Calibration
from costmodel.calibration.device import Device
from costmodel.calibration.form import Parameter
from costmodel.calibration.forms import FORMS
from costmodel.calibration.kernel_step import SMALL, KernelStep, matmuls
from costmodel.calibration.kernels import KernelCalibration
from costmodel.calibration.prefill_attention import pieces
from models.errors import UserError

DEVICE = Device("h100-sxm", 3.35e12, 989e12, 132, 50 * 2**20)
LLAMA = find_architecture("llama-3-8b")


def made(form: str, width: float) -> Calibration:
    parameters = tuple(Parameter(s.name, s.start, 0.02, s.unit, s.meaning) for s in FORMS[form].specs)
    return Calibration(form, DEVICE, parameters, (-width, 0.0, width), 3, "made up")


SILICON = KernelCalibration(made("gemm", 0.1), made("decode attention", 0.2), made("prefill attention", 0.3))


def test_the_matmuls_of_llama_3_8b():
    """32 layers of q, k, v 4096 + 2 x 1024, o 4096, gate and up 2 x 14336, down; a head of 128256."""
    found = {(m.n, m.k, m.times) for m in matmuls(LLAMA)}
    assert found == {(6144, 4096, 32), (4096, 4096, 32), (28672, 4096, 32), (4096, 14336, 32)}
    head = KernelStep(LLAMA, SILICON).head
    assert (head.n, head.k) == (128256, 4096)
    assert sum(m.n * m.k * m.times for m in matmuls(LLAMA)) + head.n * head.k == LLAMA.multiplied


def test_a_mixed_step_is_the_sum_of_its_kernels():
    step = KernelStep(LLAMA, SILICON)
    share = step.share(300 + 2, 3, [100, 300], [(64, 300)])
    shapes = [(302, 6144, 4096), (302, 4096, 4096), (302, 28672, 4096), (302, 4096, 14336)]
    each = [float(SILICON.gemm.seconds({"m": m, "n": n, "k": k})) for m, n, k in shapes]
    assert share.matmuls == pytest.approx(32 * sum(each) + float(SILICON.gemm.seconds({"m": 3, "n": 128256, "k": 4096})))
    heads = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    assert share.decode == pytest.approx(32 * float(SILICON.decode.seconds({**heads, "batch": 2, "context": 200, "cold": 1.0})))
    assert share.prefill == pytest.approx(32 * float(SILICON.prefill.seconds({**heads, **pieces([(64, 300)])})))
    assert share.small > (SMALL * 32) * 2.5e-6
    assert share.seconds == pytest.approx(share.matmuls + share.decode + share.prefill + share.small)
    assert step.share(302, 3, [100, 300], [(64, 300)]) == share  # from what it remembers


def test_a_step_without_rows_or_prompts():
    step = KernelStep(LLAMA, SILICON)
    assert step.share(64, 1, [], [(0, 64)]).decode == 0.0
    assert step.share(8, 8, [9] * 8, []).prefill == 0.0
    assert step.share(64, 0, [], [(0, 64)]).matmuls < step.share(64, 1, [], [(0, 64)]).matmuls


def test_the_interval_is_that_of_kernels_that_err_together():
    step = KernelStep(LLAMA, SILICON)
    share = step.share(8, 8, [4096] * 8, [])
    low, high = step.band(share, 0.9)
    expected = (share.matmuls + share.small) * math.exp(0.09) + share.decode * math.exp(0.18)
    assert high == pytest.approx(math.log(expected / share.seconds)) and low < 0 < high


@pytest.mark.parametrize(
    ("name", "what"), [("mixtral-8x7b", "experts"), ("gemma-3-1b", "windows"), ("deepseek-v2-lite", "experts")]
)
def test_models_whose_kernels_were_not_measured(name: str, what: str):
    with pytest.raises(UserError, match=f"{name} has {what}"):
        KernelStep(find_architecture(name), SILICON)
