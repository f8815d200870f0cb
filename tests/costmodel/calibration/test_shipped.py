"""Kernels that come with the package. Oracles: the measured tables of ../shared/silicon, fitted afresh; what a user may give instead."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from costmodel.calibration.kernels import decode_table, gemm_table, h100, prefill_table
from costmodel.calibration.shipped import NONE, SHIPPED, choose, kernels
from models.errors import UserError

FOLDER = Path(__file__).parents[4] / "shared" / "silicon"


def test_what_is_shipped():
    """Fractions of an H100 are below 1, their origin is said, and no measured time is in the file."""
    chosen = choose(None)
    assert chosen is not None and chosen.silicon.device.name == "h100-sxm"
    for each in chosen.silicon:
        assert 0 < each.values["bandwidth"] < 1 and each.widened == 0 and len(each.errors) == 101
    for part in (SHIPPED.name, "Apache-2.0", "costmodel calibrate", "20"):
        assert part in chosen.source
    assert SHIPPED.stat().st_size < 12_000


@pytest.mark.slow
@pytest.mark.skipif(
    not FOLDER.is_dir(), reason="needs ../shared/silicon, kernel times that are handed over beside this repository"
)
def test_it_is_what_the_tables_say():
    """A fit made now predicts every measured point as the file does, to 1 %: the file is no older than the form."""
    for shipped, fresh, read in zip(kernels(None), h100(FOLDER), (gemm_table, decode_table, prefill_table), strict=True):
        features = read(FOLDER).sample().features
        np.testing.assert_allclose(shipped.seconds(features), fresh.seconds(features), rtol=0.01)
        assert shipped.band(0.9) == pytest.approx(fresh.band(0.9), abs=0.01)


def test_what_is_given_instead(tmp_path: Path):
    assert choose(NONE) is None
    own = tmp_path / "own.json"
    own.write_text(json.dumps(kernels(None).to_json()))
    chosen = choose(str(own))
    assert chosen is not None and chosen.source == str(own) and chosen.silicon == kernels(None)
    with pytest.raises(UserError, match=r"--silicon .*nothing.json: no such file; .*or none"):
        choose(str(tmp_path / "nothing.json"))
    own.write_text("{")
    with pytest.raises(UserError, match=r"--silicon .*own.json: not valid JSON"):
        choose(str(own))
    own.write_text("[]")
    with pytest.raises(UserError, match=r"--silicon .*own.json: it holds no kernels"):
        choose(str(own))
    with pytest.raises(UserError, match=r"h100_sxm_gemm\.csv"):
        choose(str(tmp_path))
