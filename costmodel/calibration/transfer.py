"""A chip that was never fitted: its data sheet, with the fractions that another chip reached of its own."""

from __future__ import annotations

import dataclasses

from costmodel.calibration.calibration import Calibration
from costmodel.calibration.device import Device
from costmodel.calibration.kernels import KernelCalibration
from costmodel.hardware.chip import Chip

# sd of the logarithm of a time that is added to the interval. A judgement and no measurement: libraries reach 0.65 to 0.95 of the peaks
# and bandwidths of data sheets, so a fraction carried over is right to about a fifth.
SPREAD = 0.2


def transfer(silicon: KernelCalibration, chip: Chip | Device) -> KernelCalibration:
    """The same fractions, launch costs and rates of a core on another chip; cores, bandwidth, peak and cache are its own.

    Args:
      chip: where the number of its SMs is not known, a `Device` that says it.

    Raises:
      UserError: the number of its SMs or the size of its cache is not known.
    """
    device = chip if isinstance(chip, Device) else Device.of(chip)
    return KernelCalibration(*(_moved(each, device) for each in silicon))


def _moved(calibration: Calibration, device: Device) -> Calibration:
    if device == calibration.device:
        return calibration
    source = f"{calibration.source}, carried over from {calibration.device.name}"
    return dataclasses.replace(calibration, device=device, source=source, widened=SPREAD)
