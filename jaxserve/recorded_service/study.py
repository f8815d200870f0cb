"""The study behind `python -m jaxserve.replay_service`: a recorded service, and simulations of it with nothing and little fitted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from costmodel.calibration.kernels import KernelCalibration
from costmodel.calibration.shipped import NONE, choose
from costmodel.calibration.transfer import SPREAD, transfer
from jaxserve.predict.analytical import Analytical
from jaxserve.predict.calibrated import KernelCalibrated
from jaxserve.recorded_service.compare import LEVEL, WIDE, Compared, Strayed, compare, strays
from jaxserve.recorded_service.deployed import Deployed, deployed
from jaxserve.recorded_service.fit import ENOUGH, ROUNDS, Fitted, fit
from jaxserve.recorded_service.play import play
from jaxserve.recorded_service.recorded import Recorded, Served, read
from jaxserve.recorded_service.step_time import Counted, Parameters, StepTime
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

Bar = Callable[[str, int], Callable[[int], None]]
Steps = Callable[[Plan], float]
SIXTEEN = ("bfloat16", "float16")  # what was multiplied where kernels were measured, and what runs as fast


@dataclasses.dataclass(frozen=True)
class ServiceSpec:
    """The options of the command; see its --help.

    Attributes:
      fitted_on: another recording, whose parameters are tried here as well, with this chip's data sheet.
      first: so many requests are fitted.
      silicon: kernels that are carried over where nothing is fitted, see `costmodel.calibration.shipped.choose`.
    """

    folder: Path
    fitted_on: Path | None
    first: int
    model: str | None
    chip: str | None
    silicon: str | None


class Judged(NamedTuple):
    """One simulation of the recording.

    Attributes:
      name: what it was given; of: which requests are judged, in words.
      interval: what its intervals are made of, in words; "" where it has none.
      fitted: where parameters were.
    """

    name: str
    of: str
    interval: str
    compared: Compared
    fitted: Fitted | None = None


class Study(NamedTuple):
    """All of it."""

    recorded: Recorded
    service: Deployed
    judged: Sequence[Judged]


class Unsure(NamedTuple):
    """Steps, and the ends of what they may take.

    Attributes:
      pairs: of each direction in which they err independently, both ends.
      interval: what they are, in words.
    """

    steps: Steps
    pairs: Sequence[tuple[Steps, Steps]] = ()
    interval: str = ""


def study(asked: ServiceSpec, bar: Bar) -> Study:
    """Read, simulate with nothing fitted, fit, and simulate again.

    Raises:
      UserError: as `choose`, `read`, `deployed` and `fit`.
    """
    recorded = read(asked.folder)
    service = deployed(recorded, model=asked.model, chip=asked.chip)
    requests, first = recorded.requests, asked.first
    name, unsure = _unfitted(service, asked.silicon)
    if not ENOUGH <= first < len(requests):
        raise UserError(
            f"--first is {first}; fitting takes {ENOUGH} requests to {len(requests) - 1}, for the others must judge"
        )
    judged = [_judge(name, unsure, service, requests, bar)]
    if asked.fitted_on is not None:
        other = read(asked.fitted_on)
        elsewhere = deployed(other, model=asked.model)
        there = _fit(elsewhere, other.requests, first, bar)
        missed = strays(other.requests[:first], play(elsewhere, other.requests, _steps(elsewhere, there.parameters))[:first])
        name = f"fitted to the first {first} requests of {other.name}, and the data sheet exchanged for that of {service.chip.name}"
        judged.append(_judge(name, _exchanged(service, there, first), service, requests, bar, strayed=missed, fitted=there))
    here = _fit(service, requests, first, bar)
    name = f"the chip fitted to the first {first} requests"
    judged.append(_judge(name, _known(service, here, first), service, requests, bar, first=first, fitted=here))
    return Study(recorded, service, judged)


def _unfitted(service: Deployed, silicon: str | None) -> tuple[str, Unsure]:
    """What is known before anything of a service was measured. Where the kernels that come with the package don't suit, the roofline.

    Raises:
      UserError: kernels were asked for that don't suit the model, its numbers or the chip.
    """
    chosen, chip, why = choose(silicon), service.chip, ""
    if chosen is not None:
        try:
            there, kernels = _kernels(service, chosen.silicon)
        except UserError as error:
            if silicon is not None:
                raise UserError(f"--silicon {silicon}: {error}; or give {NONE}") from None
            chosen, why = None, f", for kernels of an H100 say nothing of it: {error}"
    if chosen is None:
        roofline = Analytical(service.architecture, chip, dtype=service.dtype, kv_dtype=service.kv_dtype)
        return f"nothing fitted: the roofline of the data sheet of {chip.name}{why}", Unsure(roofline)
    low, high = (lambda plan, end=end: kernels.interval(plan, LEVEL)[end] for end in (0, 1))
    interval = "steps at the ends of their own interval, the errors of all kernels going the same way"
    if there.gemm.widened:
        interval += f"; a chip that was never fitted: {SPREAD:.0%} more spread"
    name = (
        f"nothing of the service fitted: kernels of {chosen.silicon.device.name}, carried over to the data sheet of {chip.name}"
    )
    return name, Unsure(kernels, [(low, high)], f"{interval}. Kernels: {chosen.source}")


def _kernels(service: Deployed, silicon: KernelCalibration) -> tuple[KernelCalibration, KernelCalibrated]:
    """On the service's chip. Raises UserError where the kernels are of something else."""
    for what, dtype in (("weights", service.dtype), ("KV", service.kv_dtype)):
        if dtype not in SIXTEEN:
            raise UserError(f"the service's {what} are {dtype}, and the kernels multiply 16 bit ({' or '.join(SIXTEEN)})")
    there = transfer(silicon, service.chip)
    return there, KernelCalibrated(service.architecture, there)


def _known(service: Deployed, fitted: Fitted, first: int) -> Unsure:
    """Steps of a chip that was fitted: its parameters err along their axes."""
    interval = f"parameters at the ends of their own, and the errors of the {first} requests that were fitted, as quantiles"
    return _along(service, fitted.parameters, fitted.axes, interval)


def _exchanged(service: Deployed, fitted: Fitted, first: int) -> Unsure:
    """Steps by another chip's shares, which are right to `SPREAD`: all of them err the same way, as those of kernels are taken to."""
    axis = Parameters(*(math.hypot(error, SPREAD) for error in fitted.errors))
    return _along(
        service,
        fitted.parameters,
        [axis],
        f"another chip's shares: {SPREAD:.0%} more spread, all the same way, and the errors of the {first} requests fitted there",
    )


def _along(service: Deployed, parameters: Parameters, axes: Sequence[Parameters], interval: str) -> Unsure:
    def end(axis: Parameters, sign: int) -> Steps:
        moved = [value * math.exp(sign * WIDE * log) for value, log in zip(parameters, axis, strict=True)]
        return _steps(service, Parameters(*moved))

    return Unsure(_steps(service, parameters), [(end(axis, -1), end(axis, 1)) for axis in axes], interval)


def _counted(service: Deployed) -> Counted:
    return Counted(Analytical(service.architecture, service.chip, dtype=service.dtype, kv_dtype=service.kv_dtype))


def _steps(service: Deployed, parameters: Parameters) -> StepTime:
    return StepTime(_counted(service), parameters)


def _fit(service: Deployed, requests: Sequence[Served], first: int, bar: Bar) -> Fitted:
    advance = bar("fitting", ROUNDS)
    return fit(service, _counted(service), requests, first, done=lambda: advance(1))


def _judge(
    name: str,
    unsure: Unsure,
    service: Deployed,
    requests: Sequence[Served],
    bar: Bar,
    *,
    first: int = 0,
    strayed: Mapping[str, Strayed] | None = None,
    fitted: Fitted | None = None,
) -> Judged:
    """Simulate all, and compare those after the first, whose own errors say how far the others may stray."""
    advance = bar("requests simulated", len(requests) * (1 + 2 * len(unsure.pairs)))

    def run(steps: Steps) -> list[Served]:
        return play(service, requests, steps, done=lambda: advance(1))

    found = run(unsure.steps)
    pairs = [(run(low)[first:], run(high)[first:]) for low, high in unsure.pairs]
    missed = strays(requests[:first], found[:first]) if first else strayed
    of = f"requests {first + 1} to {len(requests)}, which were not fitted" if first else f"all {len(requests)} requests"
    return Judged(name, of, unsure.interval, compare(requests[first:], found[first:], pairs, missed), fitted)
