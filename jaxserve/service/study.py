"""The study behind `python -m jaxserve.replay_service`: a recorded service, and simulations of it with nothing and little fitted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from costmodel.calibration.silicon import Silicon, h100
from costmodel.calibration.transfer import transfer
from jaxserve.calibrated import KernelCalibrated
from jaxserve.predict import Analytical
from jaxserve.scheduling.plan import Plan
from jaxserve.service.compare import Error, compare
from jaxserve.service.deployed import Deployed, deployed
from jaxserve.service.fit import ROUNDS, Fitted, fit
from jaxserve.service.play import play
from jaxserve.service.recorded import Recorded, Served, read
from jaxserve.service.steptime import Counted, Parameters, StepTime
from models.errors import UserError

Bar = Callable[[str, int], Callable[[int], None]]


@dataclasses.dataclass(frozen=True)
class Asked:
    """The options of the command; see its --help.

    Attributes:
      fitted_on: another recording, whose parameters are tried here as well, with this chip's data sheet.
      first: so many requests are fitted.
      silicon: kernels of a chip that are carried over where nothing is fitted: a folder of tables, or what `python -m costmodel
        calibrate --out` wrote. None: the roofline of the data sheet alone.
    """

    folder: Path
    fitted_on: Path | None
    first: int
    model: str | None
    chip: str | None
    silicon: Path | None


class Judged(NamedTuple):
    """One simulation of the recording.

    Attributes:
      name: what it was given.
      parameters: where some were fitted.
      errors: of the requests that are judged; of: which these are, in words.
    """

    name: str
    of: str
    errors: Sequence[Error]
    fitted: Fitted | None = None


class Study(NamedTuple):
    """All of it."""

    recorded: Recorded
    service: Deployed
    judged: Sequence[Judged]


def study(asked: Asked, bar: Bar) -> Study:
    """Read, simulate with nothing fitted, fit, and simulate again.

    Raises:
      UserError: as `read`, `deployed` and `fit`.
    """
    recorded = read(asked.folder)
    service = deployed(recorded, model=asked.model, chip=asked.chip)
    requests, first = recorded.requests, asked.first
    judged = [_judge(*_unfitted(service, asked.silicon), service, requests, bar)]
    if asked.fitted_on is not None:
        other = read(asked.fitted_on)
        there = _fit(deployed(other, model=asked.model), other.requests, first, bar)
        name = f"fitted to the first {first} requests of {other.name}, and the data sheet exchanged for that of {service.chip.name}"
        judged.append(_judge(name, _steps(service, there.parameters), service, requests, bar, fitted=there))
    here = _fit(service, requests, first, bar)
    name = f"the chip fitted to the first {first} requests"
    judged.append(_judge(name, _steps(service, here.parameters), service, requests, bar, first=first, fitted=here))
    return Study(recorded, service, judged)


def _unfitted(service: Deployed, silicon: Path | None) -> tuple[str, Callable[[Plan], float]]:
    """What is known before anything of a service was measured: (name, predictor)."""
    if silicon is None:
        roofline = Analytical(service.architecture, service.chip, dtype=service.dtype, kv_dtype=service.kv_dtype)
        return f"nothing fitted: the roofline of the data sheet of {service.chip.name}", roofline
    kernels = _kernels(silicon)
    name = f"nothing fitted: kernels of {kernels.device.name}, carried over to the data sheet of {service.chip.name}"
    return name, KernelCalibrated(service.architecture, transfer(kernels, service.chip))


def _kernels(path: Path) -> Silicon:
    if path.is_dir():
        return h100(path)
    try:
        return Silicon.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"--silicon {path} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"--silicon {path} is no JSON: {error}") from None


def _counted(service: Deployed) -> Counted:
    return Counted(Analytical(service.architecture, service.chip, dtype=service.dtype, kv_dtype=service.kv_dtype))


def _steps(service: Deployed, parameters: Parameters) -> StepTime:
    return StepTime(_counted(service), parameters)


def _fit(service: Deployed, requests: Sequence[Served], first: int, bar: Bar) -> Fitted:
    advance = bar("fitting", ROUNDS)
    return fit(service, _counted(service), requests, first, done=lambda: advance(1))


def _judge(
    name: str,
    steps: Callable[[Plan], float],
    service: Deployed,
    requests: Sequence[Served],
    bar: Bar,
    *,
    first: int = 0,
    fitted: Fitted | None = None,
) -> Judged:
    """Simulate all, and compare those after the first."""
    advance = bar("requests simulated", len(requests))
    found = play(service, requests, steps, done=lambda: advance(1))
    of = f"requests {first + 1} to {len(requests)}, which were not fitted" if first else f"all {len(requests)} requests"
    return Judged(name, of, compare(requests[first:], found[first:]), fitted)
