"""The H100's measured kernels (../shared/silicon). Oracle: the measurements themselves, on shapes that the fit had not seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from costmodel.calibration.coverage import coverage
from costmodel.calibration.kernels import KernelCalibration, decode_table, gemm_table, h100, prefill_table
from costmodel.calibration.transfer import SPREAD, transfer
from costmodel.hardware.chips import CHIPS
from models.errors import UserError

FOLDER = Path(__file__).parents[4] / "shared" / "silicon"
TABLES = {"gemm": gemm_table, "decode": decode_table, "prefill": prefill_table}

here = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="needs ../shared/silicon, kernel times that are handed over beside this repository"
)


def test_no_tables(tmp_path: Path):
    with pytest.raises(UserError, match=r"h100_sxm_gemm\.csv: no such file"):
        h100(tmp_path)


@here
def test_rows_of_the_tables():
    """The counts of ../shared/silicon/README.md."""
    assert [len(table(FOLDER).seconds) for table in TABLES.values()] == [34776, 6770, 5763]
    kernel = prefill_table(FOLDER)
    f, groups = kernel.features, kernel.groups
    one = (f["heads"] == 32) & (f["kv_heads"] == 8) & (groups["batch"] == 1) & (groups["context"] == 256)
    assert f["pairs"][one].tolist() == [256 * 257 / 2] and f["tiled"][one].tolist() == [10 * 64 * 64]


@here
@pytest.mark.slow
def test_matmuls_of_few_rows_by_shape():
    """Target: median 10 % at m <= 512. The roofline is far off there, for small matmuls are launches and latency."""
    kernel = gemm_table(FOLDER).sample()
    errors = kernel.held_out("shape").errors(kernel.features["m"] <= 512)
    assert errors.median <= 0.10
    assert errors.roofline_median > 3 * errors.median


@here
@pytest.mark.slow
@pytest.mark.parametrize("by", ["shape", "batch", "context"])
def test_attention_of_rows_that_decode(by: str):
    """Target: median 10 %."""
    errors = decode_table(FOLDER).sample().held_out(by).errors()
    assert errors.median <= 0.10
    assert errors.roofline_median > 3 * errors.median


@here
@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_intervals_cover_what_they_claim(name: str):
    """Half of the shapes are neither fitted nor held out. Rule: 85 to 95 % of points, and 3 sd of a binomial of so many shapes."""
    found = coverage(TABLES[name](FOLDER).sample(), 0.9)
    assert found.holds and 0.85 <= found.covered <= 0.95, found.line


@here
@pytest.mark.slow
def test_a_chip_that_was_never_fitted():
    """Few rows over large weights take as much longer as its bandwidth is smaller, and the interval says that it is less sure."""
    silicon = h100(FOLDER)
    assert KernelCalibration.from_json(json.loads(json.dumps(silicon.to_json()))) == silicon
    there = transfer(silicon, CHIPS["rtx-4090"])
    assert there.gemm.values == silicon.gemm.values and there.device.name == "rtx-4090"
    features = {"m": 1, "n": 65536, "k": 65536}
    ratio = float(there.gemm.seconds(features) / silicon.gemm.seconds(features))
    assert ratio == pytest.approx(3350 / 1008, rel=0.01)
    (low, high), (least, most) = (np.array(each.gemm.band(0.9)) for each in (silicon, there))
    assert most - least > high - low and (most - least) / 2 > 1.64 * SPREAD
    assert transfer(silicon, CHIPS["h100-sxm"]) == silicon
