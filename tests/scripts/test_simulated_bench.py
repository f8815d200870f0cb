"""The bench on the virtual clock, as a command. Oracle: step times summed by hand over the plans that one batch comes to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxserve.scheduling.plan import Plan
from models.checkpoint.sources import open_checkpoint
from scripts.engine_ours import ladder
from scripts.workload import Workload
from tests.jaxserve import commands
from tests.jaxserve.calibration.test_machine import MADE
from tests.jaxserve.commands import error_line

TINY = MADE._replace(model="random:tiny")
LOAD = ("--requests", "3", "--rows", "4", "--context", "48", "--seed", "1")


def machine(tmp_path: Path) -> str:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(TINY.to_json()))
    return str(file)


@pytest.mark.slow
def test_one_batch_takes_what_its_steps_take(tmp_path: Path):
    """Three requests fit one static batch: a step of all prompts, then decodes until each answer has ended."""
    given = ("--machine", machine(tmp_path), *LOAD, "--budgets", "34,48", "--json")
    found = commands.run("scripts.simulated_bench", *given, cache=tmp_path)
    assert found.returncode == 0 and found.stderr == "", found.stderr
    result = json.loads(found.stdout)
    names = ["static", "continuous", "chunked, 34 tokens a step", "chunked, 48 tokens a step"]
    assert result["witness"] == "simulated" and list(result["policies"]) == names
    load = result["workload"]
    assert load["requests"] == 3 and load["longest"] <= 48

    checkpoint = open_checkpoint("random:tiny")
    items = Workload.of(None, checkpoint.tokenizer(), requests=3, context=48, seed=1).items
    predictor = TINY.predictor(checkpoint.config, ladder("static", 4, load["longest"]))
    prompts = tuple(len(item.prompt) for item in items)
    seconds, ids = predictor(Plan(0, 0, (0, 1, 2), (0, 0, 0), prompts, (1, 1, 1), ((),) * 3)), (0, 1, 2)
    for step in range(1, max(item.output for item in items)):
        left = [i for i in ids if items[i].output > step]
        starts, ones = tuple(prompts[i] + step - 1 for i in left), (1,) * len(left)
        seconds += predictor(Plan(step, 0, tuple(left), starts, ones, ones, ((),) * len(left)))
    static = result["policies"]["static"]
    assert static["seconds"] == pytest.approx(seconds) and static["useful"] == pytest.approx(load["output_tokens"] / seconds)
    assert static["itl_p99_over_pure_decode"] == pytest.approx(static["itl_p99_ms"] / static["pure_decode_ms"])


@pytest.mark.slow
def test_people_get_a_table_that_names_its_witness(tmp_path: Path):
    found = commands.run("scripts.simulated_bench", "--machine", machine(tmp_path), *LOAD, "--budgets", "34", cache=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (
        "simulated, with step times calibrated on this machine" in found.stdout and "chunked, 34 tokens a step" in found.stdout
    )


@pytest.mark.slow
def test_bad_input(tmp_path: Path):
    found = commands.run("scripts.simulated_bench", "--machine", "none.json", *LOAD, cache=tmp_path)
    assert found.returncode == 2 and "none.json: no such file" in error_line(found.stderr)
    found = commands.run("scripts.simulated_bench", "--machine", machine(tmp_path), *LOAD, "--budgets", "2", cache=tmp_path)
    assert found.returncode == 2 and "a budget of 2 tokens a step is too small for 4 rows" in error_line(found.stderr)
