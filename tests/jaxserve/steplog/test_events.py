"""Lines that are no lines of a step log, whatever stands around them. Oracle: which line it is, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jaxserve.scheduling.observer import Observer
from jaxserve.steplog.replay import replay
from tests.jaxserve.steplogs import altered, refusal, small_log, unchecked


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_log(tmp_path / "steps.jsonl")


def test_the_last_line_may_be_cut_anywhere(small: Path):
    whole = unchecked(small).read_bytes()
    lines = whole.splitlines(keepends=True)
    plans = sum(b'"planned"' in line for line in lines)
    last = len(lines[-1])
    assert b'"folded"' in lines[-1]
    for gone in (0, 1, 2, last // 2, last - 1, last):
        small.write_bytes(whole[: len(whole) - gone])
        found = replay(small, Observer())
        cut = len(lines) if 1 < gone < last else None  # without its end of line it is whole still
        assert (found.plans, found.difference, found.cut) == (plans, None, cut), gone


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not valid JSON ("),
        ("[1]", "it is no JSON object: b'[1]"),
        ("\xff", "not valid JSON"),
        ("", "not valid JSON"),
        ('{"event":"cancelled","id":NaN,"now":0}', "not valid JSON (NaN is no number"),
        ('{"event":"log"}', "the event is 'log'; there are submitted, cancelled, planned, folded, stepped"),
        ('{"event":["x"]}', "the event is ['x']"),
        ('{"event":"cancelled","now":0}', "cancelled lacks the field id"),
        ('{"event":"cancelled","now":0,"id":1,"x":2}', "cancelled has no field x"),
        ('{"event":"cancelled","now":"soon","id":1}', "cancelled.now is 'soon'; it must be a number"),
        ('{"event":"submitted","now":0,"id":1,"prompt":0,"limit":1}', "request 1 has an empty prompt"),
        (
            '{"event":"submitted","now":0,"id":1,"prompt":3,"limit":1,"tokens":[1]}',
            "request 1 has a prompt of 3 tokens, but 1 are",
        ),
        (
            '{"event":"folded","now":0,"step":0,"worker":5,"drawn":0}',
            "the outcome of step 0 on worker 5, where [] are under way",
        ),
        (
            '{"event":"planned","now":0,"digest":"","step":0,"worker":0,"rows":2,"prefill":0,"decode":0,"draft":0,"pages":0,"slots":0}',
            "planned: a plan of 2 rows has columns of [0]",
        ),
    ],
)
def test_a_malformed_line_is_named(small: Path, line: str, says: str):
    lines = small.read_bytes().splitlines(keepends=True)
    small.write_bytes(b"".join([lines[0], line.encode("latin-1") + b"\n", *lines[1:]]))
    assert refusal(small).startswith(f"line 2 of {small}: {says}")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"format": 2, "jaxserve": "9.1"},
            "the log has format 2, this version reads format 1; replay it with the version of jaxserve ",
        ),
        ({"event": "submitted"}, "it is no head of a step log"),
        ({"policy": {"name": "orca"}}, "policy.name is 'orca'; there are static, "),
        ({"memories": []}, "give every worker a prefix cache, or none of them"),
        ({"memories": [{"kind": "slots", "total": 0, "size": 1}]}, "memory.total is 0; it must be at least 1"),
        ({"clock": "sun"}, "log.clock is 'sun'; it must be one of monotonic, virtual"),
    ],
)
def test_another_head_is_refused(small: Path, change: dict[str, Any], says: str):
    altered(small, 1, **change)
    assert refusal(small).startswith(f"line 1 of {small}: {says}")


GIVE = "give the file that an engine or a simulation wrote"


def test_what_is_no_log_is_refused(tmp_path: Path):
    (tmp_path / "empty").touch()
    assert refusal(tmp_path / "empty") == f"the step log {tmp_path / 'empty'} is empty"
    assert refusal(tmp_path / "none") == f"the step log {tmp_path / 'none'}: no such file; {GIVE}"
    assert refusal(tmp_path) == f"the step log {tmp_path}: this is a folder; {GIVE}"
