"""From runs to targets. Oracle: worked out by hand on runs that were made up."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from scripts.engine_report import show
from scripts.engine_results import Target, results
from scripts.served import Served
from scripts.workload import Item, Workload
from tests.scripts.test_served import PROMPT, record

LOAD = Workload((Item((7,) * 4, 3), Item((7,) * 6, 2)), "made up", 0.5)
ANSWERS = [[1, 2, 3], [4, 5]]
HOST = {"plan": 0.5, "pack": 0.25}


def run(seconds: float, gap: float = 0.1, answers: list[list[int]] | None = None) -> Served:
    """Five tokens; the gaps between them are three of `gap` s."""
    times = [[gap, 2 * gap, 3 * gap], [gap, 2 * gap]]
    return Served(seconds, answers or ANSWERS, times, (PROMPT, record(measured=0.1, host=0.02)), 0.25)


RUNS = {
    "static": [run(4.0), run(6.0)],
    "continuous": [run(2.0), run(2.0)],
    "chunked": [run(2.5, 0.16), run(2.5, 0.3)],
    "transformers": [run(2.0, answers=[[1, 2, 3], [4, 6]]), run(3.0, answers=[[1, 2, 3], [4, 6]])],
    "llama.cpp": [run(1.0), run(1.5)],
}
GAPS = {
    "nothing planned ahead": (0.001, 0.005),
    "a step planned ahead": (0.0, 0.0),
}  # s of the host in steps of 0.1 s, by rounds
STEPS = {
    how: [Served(1.0, [], [], (record(measured=0.1 - gap, host=gap),) * 120) for gap in gaps] for how, gaps in GAPS.items()
}


def found(**runs: Any) -> dict[str, Any]:
    return results(LOAD, 4, dict.fromkeys(RUNS, "as it comes"), runs or RUNS, STEPS, HOST)


def test_targets():
    """Host: 1 and 5 ms of 100, median 3 and 3 %; none that shows. Static takes 2 and 3 times as long. Gaps of 0.16 and 0.3 s over 0.1 s."""
    targets = {target["what"]: target for target in found()["targets"]}
    expected = {
        "host, ms a step of all rows, median": ((1.0, 5.0), False),
        "the same where a step is planned ahead, as is usual": ((0.0, 0.0), True),
        "host, share of those steps": ((0.01, 0.05), True),
        "continuous over static, tokens/s of answers": ((2.0, 3.0), True),
        "chunked: ITL P99 over a pure-decode step of all rows": ((1.6, 3.0), False),
        "continuous over transformers, tokens/s of answers": ((1.0, 1.5), True),
        "continuous over llama.cpp, tokens/s of answers": ((0.5, 0.75), False),
    }
    assert list(targets) == list(expected)
    for what, (values, met) in expected.items():
        assert targets[what]["values"] == pytest.approx(values), what
        assert targets[what]["met"] is met, what


def test_only_what_took_part_is_judged():
    alone = found(chunked=RUNS["chunked"], **{"llama.cpp": RUNS["llama.cpp"]})
    whats = [target["what"] for target in alone["targets"]]
    assert whats[3:] == ["chunked: ITL P99 over a pure-decode step of all rows", "chunked over llama.cpp, tokens/s of answers"]
    assert list(alone["profiles"]) == ["chunked"]


@pytest.mark.parametrize(
    ("values", "most", "met"), [((2.0,), False, True), ((1.9,), False, False), ((2.0,), True, True), ((1.5, 2.6), True, False)]
)
def test_a_target_is_met_by_the_median(values: tuple[float, ...], most: bool, met: bool):
    assert Target("t", values, 2.0, most).met is met


def test_systems_and_agreement():
    """5 tokens in 4 s; with the 10 of prompts 15. transformers differs in the last of 5 tokens, at place 1 of request 1."""
    systems = found()["systems"]
    first = systems["static"]["runs"][0]
    assert (first["useful"], first["total"], first["itl_p99_ms"], first["contention"]) == (1.25, 3.75, pytest.approx(100), 0.25)
    assert systems["transformers"]["alike"] == {"requests": 2, "same": 1, "share": 0.8, "first": (1, 1)}
    assert systems["llama.cpp"]["alike"]["first"] is None


def test_answers_of_one_token_have_no_gaps():
    one = Served(1.0, [[1], [2]], [[0.5], [0.6]], (PROMPT,))
    assert found(static=[one, one])["systems"]["static"]["runs"][0]["itl_p99_ms"] is None


def shown(result: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=160)
    show({"facts": {"machine": "this one", "jax": "x"}, **result}, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_report_names_what_was_measured_and_profiles_what_was_missed():
    text = shown(found())
    for part in ("machine this one", "2 requests", "made up", "measured", "analytical", "NOT met", "1.600, 3.000", "80.0%"):
        assert part in text, part
    assert "Where the time of chunked went" in text and "0.250" in text


def test_where_all_is_met_no_profile_is_printed():
    result = found(continuous=RUNS["continuous"])
    result["targets"] = [target for target in result["targets"] if target["met"]]
    assert "Where the time" not in shown(result) and "NOT met" not in shown(result)


def test_the_report_says_where_there_are_no_gaps():
    one = Served(1.0, [[1], [2]], [[0.5], [0.6]], (PROMPT,))
    assert "none" in shown(found(static=[one, one]))
