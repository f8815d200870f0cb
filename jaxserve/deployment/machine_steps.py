"""What steps take on the machine that `python -m jaxserve.calibrate` measured: programs of its engine, with what they pad, and the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from costmodel.sizing import Placement
from jaxserve.calibration.machine import Machine
from jaxserve.deployment.step_times import LEVEL, StepTimes
from jaxserve.predict.calibrated import Calibrated
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

CALIBRATE = "python -m jaxserve.calibrate"
_OF = "programs of this machine's engine, with what they pad, fitted to its measured steps; the host's gap between two steps is in it"


def machine_caps(machine: Machine) -> tuple[int, ...]:
    """Caps to look at where none were asked for: all rows that the engine was measured with, half and a quarter of them."""
    rows = machine.ladder.batches[-1]
    return tuple(sorted({max(rows // part, 1) for part in (1, 2, 4)}))


def machine_steps(
    placement: Placement, file: Path, machine: Machine, *, page: int, caps: Sequence[int], context: int
) -> StepTimes:
    """Steps of the engine's programs.

    Args:
      file: that the machine was read from, for messages.
      page: tokens of a KV page; caps: that are to be simulated; context: tokens of the longest sequence.

    Raises:
      UserError: a deployment of which the calibration says nothing: another chip, several, other numbers, longer sequences, more rows.
    """
    ladder, device = machine.ladder, machine.calibration.device.name
    said = f"--machine {file} was measured"
    if placement.chip.name != device or placement.degree > 1:
        raise UserError(
            f"{said} on one {device}, and the study is of {placement.degree} x {placement.chip.name}; give --chip host on that machine, "
            "or leave --machine out"
        )
    for option, asked, has in (
        ("--dtype", placement.dtype, machine.dtype),
        ("--kv-dtype", placement.kv.name, machine.kv_dtype),
        ("--page-size", page, ladder.page),
    ):
        if asked != has:
            raise UserError(f"{said} with {option} {has}, and {asked} is asked for; give {option} {has}, or calibrate again")
    for what, most, has, option in (
        ("sequences at once", max(caps), ladder.batches[-1], "--rows"),
        ("tokens a sequence", context, ladder.context, "--context"),
    ):
        if most > has:
            raise UserError(
                f"{said} with at most {has} {what}, and {most} are asked for; ask for fewer, or {CALIBRATE} {option} {most}"
            )
    predictor = machine.predictor(placement.model)
    quick, slow = (_end(predictor, end) for end in (0, 1))
    source = f"this machine's engine ({machine.calibration.source})"
    return StepTimes("calibrated", source, predictor, quick, slow, of=_OF, host=True, piece=ladder.chunk[1])


def _end(predictor: Calibrated, end: int) -> Callable[[Plan], float]:
    """What a plan takes at one end of the interval of a step."""
    low_or_high = predictor.calibration.interval(1.0, LEVEL)[end]
    return lambda plan: predictor.device(plan) * low_or_high + predictor.gap
