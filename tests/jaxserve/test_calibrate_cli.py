"""`python -m jaxserve.calibrate` as a user runs it, on a tiny model. Oracle: what it writes, read back, and its own log of steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxserve.calibration.machine import Machine
from tests.jaxserve import commands
from tests.jaxserve.commands import error_line

SMALL = ("--model", "random:tiny", "--dtype", "float32", "--rows", "8", "--context", "64", "--contexts", "20,40,64")


@pytest.mark.slow
def test_a_tiny_model_is_measured_or_refused_in_one_line(tmp_path: Path):
    """Its steps of less than a millisecond may not tell a parameter; then the line says which."""
    done = commands.run(
        "jaxserve.calibrate", *SMALL, "--rounds", "3", "--requests", "3", "--out", "m.json", "--json", cache=tmp_path
    )
    if done.returncode:
        assert "engine step: " in error_line(done.stderr) and "; measure " in done.stderr
        return
    found = json.loads(done.stdout)
    assert Machine.read(tmp_path / "m.json") == Machine.from_json(found["machine"])
    assert {row["name"] for row in found["held_out"]} >= {"decode steps, by batch", "decode steps, by context"}
    assert {point["kind"] for point in found["points"]} == {"decode", "prefill", "mixed"}
    assert all(point["measured"] > 0 and point["calibrated"] > 0 for point in found["points"])
    covered, clock = found["covered"], found["clock"]
    assert {row["name"] for row in found["held_out"]} >= {"engine's run, decode steps"}
    assert len(covered["runs"]) == 3 and 0 <= min(covered["runs"]) <= covered["share"] <= max(covered["runs"]) <= 1
    assert covered["steps"] > 0 and covered["calibrating"] > 0
    assert Machine.read(tmp_path / "m.json").calibration.points == len(found["points"]) + covered["calibrating"]
    assert clock["drift"] > 0
    assert Machine.read(tmp_path / "m.json").calibration.widened >= clock["drift"] * (4 / 3) ** 0.5
    assert clock["floor"] == clock["halves"] / 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--out", "no/such/folder.json"), "there is no folder"),
        (("--out", "."), "--out . is a folder; give a file in it, such as machine.json"),
        (("--rows", "0"), "rows is 0"),
        (("--contexts", "8,x"), "--contexts is '8,x'"),
        (("--contexts", "8,600"), "--contexts has 600 and --context is 512: no row can hold so many tokens; give at most 512"),
        (("--context", "16"), "--contexts has 512 and --context is 16: no row can hold so many tokens; give at most 16"),
    ],
)
def test_bad_options(tmp_path: Path, options: tuple[str, ...], says: str):
    done = commands.run("jaxserve.calibrate", *SMALL[:2], *options, cache=tmp_path)
    assert done.returncode == 2 and says in error_line(done.stderr)
