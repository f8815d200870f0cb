"""Tables of kernel times that were measured elsewhere: CSV files with a column of milliseconds (docs/calibration.md has their names)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from models.errors import UserError
from models.files.reading import read_text


def read_times(path: Path, columns: Sequence[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(the named columns, seconds), f64 [rows] each.

    Args:
      columns: whole numbers above 0; the file may have others too. Its column `ms` are the times.

    Raises:
      UserError: the file can't be read, has no such column, or a line that makes no sense; the message says which.
    """
    lines = read_text(path, fix="give a folder of kernel times, with h100_sxm_gemm.csv and so on").splitlines()
    head = lines[0].strip().split(",") if lines else []
    wanted = [*columns, "ms"]
    if absent := [name for name in wanted if name not in head]:
        raise UserError(f"{path}: there is no column {absent[0]}; its first line must name {', '.join(wanted)}")
    at = [head.index(name) for name in wanted]
    table = np.empty((len(lines) - 1, len(wanted)))
    for i, line in enumerate(lines[1:]):
        cells = line.split(",")
        try:
            table[i] = [float(cells[column]) for column in at]
        except (ValueError, IndexError):
            raise UserError(
                f"{path}: line {i + 2} is {line[:60]!r}; give {len(head)} numbers, as the first line names them"
            ) from None
    bad = np.flatnonzero(~(np.isfinite(table).all(axis=1) & (table > 0).all(axis=1)))
    if bad.size:
        raise UserError(f"{path}: line {bad[0] + 2} has a figure that is not above 0; mend or leave out that line")
    if not len(table):
        raise UserError(f"{path}: there are no times in it; give at least a line below the head")
    return {name: table[:, i] for i, name in enumerate(columns)}, table[:, -1] * 1e-3
