"""Kernels that predictions start from where nothing was measured: those of an H100, fitted once and kept beside this file, or others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from costmodel.calibration.kernels import KernelCalibration, h100
from models.errors import UserError
from models.files.json_text import read_json, read_object

SHIPPED = Path(__file__).parent / "h100_sxm.json"
NONE = "none"  # how a user asks for the data sheet alone
HELP = (
    "Kernels whose fractions are carried over to the chip: a folder of measured tables, or what python -m costmodel calibrate --out "
    f"wrote; {NONE} for the roofline of the data sheet alone. Default: those of an H100 that come with this package."
)


class Chosen(NamedTuple):
    """Kernels, and where they are from.

    Attributes:
      source: in words, for people: the file, and what was measured.
    """

    silicon: KernelCalibration
    source: str


def choose(given: str | None) -> Chosen | None:
    """What a user's `--silicon` means, see `HELP`. None: the roofline alone was asked for.

    Args:
      given: a file, a folder or `NONE`; None where the option is left out.

    Raises:
      UserError: as `kernels`.
    """
    if given == NONE:
        return None
    if given is None:
        data = read_object(SHIPPED)
        return Chosen(kernels(None), f"{SHIPPED.name} of this package: {data['source']}; {data['command']}, {data['date']}")
    return Chosen(kernels(Path(given)), given)


def kernels(path: Path | None) -> KernelCalibration:
    """Calibrated kernels of a chip, to be carried over to another with `costmodel.calibration.transfer.transfer`.

    Args:
      path: a folder with the H100's tables, which are fitted (some seconds), or a file of `python -m costmodel calibrate --out`. None:
        those that come with this package.

    Raises:
      UserError: it can't be read, or is something else.
    """
    if path is None:
        return KernelCalibration.from_json(read_object(SHIPPED)["kernels"])
    if os.path.isdir(path):
        return h100(path)
    fix = f"give a folder of kernel times, a file that python -m costmodel calibrate --out wrote, or {NONE}"
    given = read_json(path, name=f"--silicon {path}", fix=fix)
    try:
        return KernelCalibration.from_json(given)
    except UserError as error:
        raise UserError(f"--silicon {path}: {error}, or {NONE}") from None
