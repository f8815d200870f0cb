"""What batch invariance costs. Oracle: the requests of both kinds of engine, counted."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from scripts.invariant_price import SHAPES, main


@pytest.mark.slow
def test_the_command():
    ran = CliRunner().invoke(main, ["--model", "random:tiny", "--dtype", "float32", "--rows", "1,2", "--rounds", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    cases = json.loads(ran.stdout)["cases"]
    assert [(case["prompt"], case["answer"], case["requests"]) for case in cases] == [
        (*shape, n) for shape in SHAPES for n in (1, 2)
    ]
    assert all(len(case["seconds"]) == len(case["seconds_invariant"]) == 2 and case["ratio"] > 0 for case in cases)
