"""The profile of a step. Oracle: times worked out by hand from a small trace, and that the parts of a real one are those of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.profile_step import by_component, own_times
from tests.jaxserve import commands
from tests.jaxserve.commands import error_line

MODULE = "scripts.profile_step"
# Thread 1: a loop of 10 us around two products of 3 and 4, then a product of 5; thread 2: a copy of 2 at the same time as the loop.
EVENTS = [
    (1, "while.1", 0.0, 10.0),
    (1, "dot.1", 1.0, 3.0),
    (1, "dot.1", 5.0, 4.0),
    (1, "dot.2", 10.0, 5.0),
    (2, "copy.1", 1.0, 2.0),
    (1, "python", 0.0, 99.0),
]


def test_a_loop_counts_without_its_body():
    assert own_times(EVENTS[:-1]) == {"while.1": 3.0, "dot.1": 7.0, "dot.2": 5.0, "copy.1": 2.0}


def test_parts_leave_out_what_is_no_instruction():
    components = {"while.1": "", "dot.1": "scores", "dot.2": "head", "copy.1": "head"}
    found = by_component(EVENTS, components)
    assert found == {"scores": 7.0, "head": 7.0, "other": 3.0} and sum(found.values()) == 17.0


@pytest.mark.slow
def test_a_step_of_a_tiny_model(tmp_path: Path):
    arguments = ("--model", "random:tiny", "--batch", "2", "--context", "40", "--steps", "3")
    found = commands.run(MODULE, *arguments, "--json", cache=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    result = json.loads(found.stdout)
    assert {"qkv", "gate_up", "down", "head", "sample"} <= set(result["part_ms"])
    assert all(taken > 0 for taken in result["part_ms"].values()) and result["step_ms"] > 0
    text = commands.run(MODULE, *arguments, cache=tmp_path).stdout
    assert "batch 2, context 40:" in text and "gate_up" in text


@pytest.mark.slow
def test_bad_input(tmp_path: Path):
    found = commands.run(MODULE, "--model", "random:tiny", "--context", "2000", cache=tmp_path)
    assert found.returncode == 2 and "--context is 2000; random:tiny takes 1 to 1024 tokens" in error_line(found.stderr)
    assert "Example: python -m scripts.profile_step" in commands.run(MODULE, "--help", cache=tmp_path).stdout
