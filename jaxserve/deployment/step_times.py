"""What steps take in a simulation: by the roofline, or by kernels that were measured on one GPU and carried over, with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from costmodel.calibration.shipped import choose
from costmodel.calibration.transfer import transfer
from costmodel.sizing import Placement
from jaxserve.predict.analytical import Analytical
from jaxserve.predict.calibrated import KernelCalibrated
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

LEVEL = 0.9  # of steps whose time lies within the interval
FORMATS = ("bfloat16", "float16")  # in which the kernels were measured

KERNELS = (
    "the sum of a step's kernels, each with the fraction of its roof that it reached where it was measured; nothing of the host"
)

Seconds = Callable[[Plan], float]


class StepTimes(NamedTuple):
    """Where step times come from.

    Attributes:
      witness: of each.
      source: for people.
      seconds: what a plan takes.
      quick, slow: what it takes at the ends of its interval, as if the errors of all kernels went the same way; None of a roofline.
      of: what a calibrated step is made of, for people.
      host: the host's part is in it.
      piece: tokens that programs fill a part of a prompt up to.
    """

    witness: Literal["analytical", "compiled", "calibrated"]
    source: str
    seconds: Seconds
    quick: Seconds | None = None
    slow: Seconds | None = None
    of: str = KERNELS
    host: bool = False
    piece: int = 1


def analytical(placement: Placement) -> StepTimes:
    """The full roofline, without padding."""
    return StepTimes("analytical", f"the roofline of the data sheet of {placement.chip.name}", roofline(placement))


def roofline(placement: Placement) -> Analytical:
    """What its steps take at the data sheet's roof."""
    return Analytical(
        placement.model, placement.chip, dtype=placement.dtype, kv_dtype=placement.kv_dtype, tensor_parallel=placement.degree
    )


def calibrated(placement: Placement, silicon: str | None) -> StepTimes:
    """The sum of a step's kernels, with the fractions of a roof that they reached on the GPU that they were measured on.

    Args:
      silicon: see `costmodel.calibration.shipped.choose`.

    Raises:
      UserError: several chips, or a format other than 16 bit, for neither was measured; as `choose`, `transfer` and `KernelStep`.
    """
    if placement.degree > 1:
        raise UserError(
            f"--step-times calibrated knows kernels of one GPU and none of its links, and {placement.degree} chips were asked for; give "
            "--tensor-parallel 1, or --step-times analytical"
        )
    for what, name in (("--dtype", placement.dtype), ("--kv-dtype", placement.kv.name)):
        if name not in FORMATS:
            raise UserError(f"{what} is {name}; kernels were measured in {' and '.join(FORMATS)}; give --step-times analytical")
    kernels = choose(silicon)
    if kernels is None:
        raise UserError(f"--silicon is {silicon} and calibrated steps are made of kernels; leave it out, or the --step-times")
    moved = transfer(kernels.silicon, placement.chip)
    predictor = KernelCalibrated(placement.model, moved)
    where = f"kernels of {kernels.silicon.device.name} ({kernels.source})"
    if moved.device != kernels.silicon.device:
        where += f", carried over to the data sheet of {placement.chip.name}"
    quick, slow = ([math.exp(each.band(LEVEL)[end]) for each in moved] for end in (0, 1))
    return StepTimes("calibrated", where, predictor, _scaled(predictor, quick), _scaled(predictor, slow))


def step_times(placement: Placement, witness: str, silicon: str | None) -> StepTimes:
    """Those of a placement by this witness. Raises UserError as `calibrated`."""
    return calibrated(placement, silicon) if witness == "calibrated" else analytical(placement)


def check_sources(witness: str, silicon: str | None, machine: Path | None) -> None:
    """Raises UserError for the source of calibrated step times where none are asked for, or for two of them."""
    if silicon is not None and witness != "calibrated":
        raise UserError("--silicon names the kernels of calibrated step times; add --step-times calibrated, or leave it out")
    if machine is not None and (witness != "calibrated" or silicon is not None):
        raise UserError(
            "--machine holds calibrated step times of an engine; give it with --step-times calibrated and without --silicon"
        )


def decode_plan(batch: int, context: int) -> Plan:
    """A step of so many rows that all hold `context` tokens when it ends."""
    return Plan(0, ids=tuple(range(batch)), starts=(context - 1,) * batch, counts=(1,) * batch, draws=(1,) * batch)


def _scaled(predictor: KernelCalibrated, factors: list[float]) -> Seconds:
    """The same kernels, each kind so many times as slow: what `KernelCalibrated.interval` says, quick enough for a simulation."""
    gemm, decode, prefill = factors

    def seconds(plan: Plan) -> float:
        shares = predictor.shares(plan)
        return sum([gemm * (s.matmuls + s.small) + decode * s.decode + prefill * s.prefill for s in shares]) + predictor.gap

    return seconds
