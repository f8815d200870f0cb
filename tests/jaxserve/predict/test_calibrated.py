"""Predictors from a calibration. Oracles: the form evaluated by NumPy on what the programs run, and kernels asked one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.arch.catalog import as_architecture
from costmodel.calibration.calibration import Calibration
from costmodel.calibration.device import Device
from costmodel.calibration.form import Parameter
from costmodel.calibration.forms import FORMS
from costmodel.calibration.kernel_step import KernelStep
from costmodel.calibration.kernels import KernelCalibration
from jaxserve.predict.calibrated import Calibrated, KernelCalibrated
from jaxserve.programs.buckets import Buckets
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

DEVICE = Device("host", 30e9, 200e9, 2, 32e6)
LADDER = Buckets((1, 2, 4, 8, 64), (128,), (16, 16), 16, prefills=(4,), mixed=(8, 64))


def made(form: str, device: Device = DEVICE) -> Calibration:
    parameters = tuple(Parameter(s.name, s.start, 0.02, s.unit, s.meaning) for s in FORMS[form].specs)
    return Calibration(form, device, parameters, (-0.1, 0.0, 0.2), 3, "made up")


MACHINE = Calibrated("llama-3.2-1b", made("engine step"), LADDER, gap=1e-3)
H100 = Device("h100-sxm", 3.35e12, 989e12, 132, 50 * 2**20)
SILICON = KernelCalibration(*(made(form, H100) for form in ("gemm", "decode attention", "prefill attention")))
KERNELS = KernelCalibrated("llama-3-8b", SILICON, gap=1e-4)


def plan(*rows: tuple[int, int, int], steps: int = 1) -> Plan:
    starts, counts, draws = zip(*rows, strict=True)
    return Plan(0, ids=tuple(range(len(rows))), starts=starts, counts=counts, draws=draws, steps=steps)


@settings(deadline=None, max_examples=40)
@given(
    decodes=st.lists(st.integers(0, 2000), max_size=64),
    prompts=st.lists(st.tuples(st.integers(0, 1500), st.integers(2, 400)), max_size=3),
)
def test_a_plan_of_a_machine(decodes: list[int], prompts: list[tuple[int, int]]):
    if not decodes and not prompts:
        return
    asked = plan(*[(start, 1, 1) for start in decodes], *[(start, count, 1) for start, count in prompts])
    expected = sum(float(MACHINE.calibration.seconds(each._asdict())) for each in MACHINE.executed.plan(asked))
    assert MACHINE(asked) == pytest.approx(expected + 1e-3, rel=1e-9)
    low, high = MACHINE.interval(asked, 0.9)
    assert low < MACHINE(asked) < high


def test_more_work_takes_longer():
    one, many, longer = (MACHINE(plan(*[(context, 1, 1)] * rows)) for rows, context in ((1, 100), (8, 100), (8, 1900)))
    assert one < many < longer
    assert MACHINE(plan((100, 1, 1), (0, 300, 1))) > MACHINE(plan((100, 1, 1), (0, 30, 1)))


def test_a_calibration_of_something_else():
    with pytest.raises(UserError, match="is of gemm; give one of engine steps"):
        Calibrated("llama-3.2-1b", made("gemm", H100), LADDER)


def test_a_mixed_plan_on_a_gpu():
    """Two rows decode with 101 and 501 tokens to attend to, 300 tokens of a prompt follow 64; a sample for each of the three."""
    asked = plan((100, 1, 1), (500, 1, 1), (64, 300, 1))
    expected = KernelStep(as_architecture("llama-3-8b"), SILICON).share(302, 3, [101, 501], [(64, 300)])
    assert KERNELS.shares(asked) == [expected]
    assert KERNELS(asked) == pytest.approx(expected.seconds + 1e-4)
    low, high = KERNELS.interval(asked)
    assert low < KERNELS(asked) < high


def test_several_steps_in_a_row_grow():
    shares = KERNELS.shares(plan((100, 1, 3), (200, 1, 3), steps=3))
    assert len(shares) == 3
    expected = KernelStep(as_architecture("llama-3-8b"), SILICON)
    assert shares == [expected.share(2, 2, [101 + i, 201 + i], []) for i in range(3)]


def test_a_row_that_verifies_is_multiplied_by_its_drafts():
    """5 tokens of one row are sampled, and its KV is read once."""
    (share,) = KERNELS.shares(plan((100, 5, 5)))
    assert share == KernelStep(as_architecture("llama-3-8b"), SILICON).share(5, 5, [105], [])
