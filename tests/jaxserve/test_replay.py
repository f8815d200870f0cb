"""`python -m jaxserve.replay` as a user meets it. Oracle: the plans of the run that was logged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxserve.kv.paged import Paged
from jaxserve.replay import main
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.steplog.writer import StepLog
from tests.jaxserve.commands import error_line, run
from tests.jaxserve.scheduling.clock import play
from tests.jaxserve.steplogs import unchecked


@pytest.fixture
def plans(tmp_path: Path) -> list[tuple[float, Plan]]:
    """Of a run of two requests for 3 and 2 tokens, one at a time, whose log is steps.jsonl."""
    with StepLog(tmp_path / "steps.jsonl", "virtual") as log:
        requests = [Request(0, range(3), 3), Request(1, range(2), 2)]
        return play(Continuous(Limits(1)), State.of(Paged.of(4, 4)), requests, watch=log).plans


GIVEN = [
    "worked out again and equal: all fields but these, which were taken as given",
    "  log: jaxserve, clock, policy, memories",
    "  submitted: now, id, prompt, limit, arrival, priority, deadline, samples, reuse, seed, tokens",
    "  planned: now",
    "  folded: now, tokens, counts, ended, drafts",
]
EQUAL = ["5 plans, all hashes equal", "14 lines, each as it was written, to the end of the log", *GIVEN]


def altered(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_equal(plans: list[tuple[float, Plan]], tmp_path: Path):
    done = run("jaxserve.replay", "steps.jsonl", cache=tmp_path)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, EQUAL, "")


def test_different(plans: list[tuple[float, Plan]], tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    altered(path, '"rows":1,"prefill_tokens"', '"rows":2,"prefill_tokens"')  # both requests at once
    done = run("jaxserve.replay", "steps.jsonl", cache=tmp_path)
    logged, lines = plans[0][1], done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert lines[:-5] == [
        "not as written, or not following on the line before: 1 lines (1)",
        "they were changed, or lines before them are missing, doubled or out of place",
        "plan 0 differs, in line 4; before it 0 plans with equal hashes",
        f"logged: digest {logged.digest}",
        *str(logged).splitlines(),
    ]
    assert lines[-5].startswith("replayed: digest ") and logged.digest not in lines[-5]
    assert lines[-4:] == [
        "step 0 on worker 0: 2 rows in 2 slots, 5 tokens",
        "  admitted: 0, 1",
        "  row 0: tokens 0 to 2, draws 1, in [0]",
        "  row 1: tokens 0 to 1, draws 1, in [1]",
    ]


def test_malformed(plans: list[tuple[float, Plan]], tmp_path: Path):
    altered(tmp_path / "steps.jsonl", '{"event":"folded"', '{"event":"folded')
    done = run("jaxserve.replay", "steps.jsonl", cache=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert error_line(done.stderr).startswith("error: line 5 of steps.jsonl: not valid JSON (")


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    return done.exit_code, done.stdout


def test_a_line_for_every_plan(plans: list[tuple[float, Plan]], tmp_path: Path):
    code, out = invoke(str(tmp_path / "steps.jsonl"), "--plans")
    expected = [f"{now:12.6f} s  {plan.digest[:8]}  " for now, plan in plans]
    lines = out.splitlines()
    assert code == 0 and all(line.startswith(begin) for line, begin in zip(lines, expected, strict=False))
    assert lines[0].endswith("step 0 on worker 0: 1 rows in 1 slots, 3 tokens; admitted: 0")
    assert lines[2].endswith("step 2 on worker 0: 1 rows in 1 slots, 1 tokens; final: 0")
    assert lines[5:] == EQUAL


def test_summary(plans: list[tuple[float, Plan]], tmp_path: Path):
    code, out = invoke(str(tmp_path / "steps.jsonl"), "--summary")
    assert code == 0 and out.splitlines()[-len(EQUAL) :] == EQUAL
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert ["prefill tokens", "5", "counted"] in cells and ["steps", "5", "counted"] in cells


def test_json(plans: list[tuple[float, Plan]], tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    code, out = invoke(str(path), "--json")
    found = json.loads(out)
    summary = found.pop("summary")
    assert code == 0 and found.pop("not_compared") == {
        "log": ["jaxserve", "clock", "policy", "memories"],
        "submitted": ["now", "id", "prompt", "limit", "arrival", "priority", "deadline", "samples", "reuse", "seed", "tokens"],
        "planned": ["now"],
        "folded": ["now", "tokens", "counts", "ended", "drafts"],
    }
    assert found == {
        "log": str(path),
        "equal": True,
        "plans": 5,
        "difference": None,
        "cut_line": None,
        "lines": {"log": 1, "submitted": 2, "planned": 5, "folded": 5, "closed": 1},
        "changed_lines": [],
        "closed": True,
        "plans_without_outcome": [],
        "answers_unfinished": 0,
        "step_without_times": None,
    }
    assert summary["tokens"] == {"prefill": 5, "decode": 3, "draft": 0, "drawn": 5}
    altered(path, plans[1][1].digest, "0" * 32)
    code, out = invoke(str(path), "--json", "--plans")
    found = json.loads(out)
    assert code == 1 and not found["equal"] and found["plans"] == 1
    assert found["difference"]["what"] == "plan 1" and found["difference"]["replayed"].endswith(f"\n{plans[1][1]}")


def test_a_log_that_ends_in_the_middle_of_a_line(plans: list[tuple[float, Plan]], tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    count = path.read_text().count("\n")
    path.write_bytes(path.read_bytes()[:-9])
    code, out = invoke(str(path))
    said = f"line {count} is cut off and was left out: the run that wrote it was ended in the middle of it"
    left = [
        "13 lines, each as it was written",
        "the log was not closed: the run was ended early, or lines are missing at its end",
    ]
    assert (code, out.splitlines()) == (0, [said, EQUAL[0], *left, *GIVEN])


def test_a_log_of_an_older_version(plans: list[tuple[float, Plan]], tmp_path: Path):
    """Without checks and without a last line: what may be wrong with it unseen is said, and what is missing at its end is named."""
    path = unchecked(tmp_path / "steps.jsonl")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    code, out = invoke(str(path))
    assert (code, out.splitlines()) == (
        0,
        [
            "5 plans, all hashes equal",
            "12 lines without checks, as older versions wrote them: a field that is given may have",
            "been changed, and a line that decided nothing may be missing, doubled or out of place",
            "no outcome is told of 1 plans: 4",
            "1 answers were not finished where the log ends",
            *GIVEN,
        ],
    )


def test_a_changed_line_is_told_although_every_plan_is_equal(plans: list[tuple[float, Plan]], tmp_path: Path):
    """Where nothing is reused anyway."""
    altered(tmp_path / "steps.jsonl", '"reuse":true', '"reuse":false')
    code, out = invoke(str(tmp_path / "steps.jsonl"))
    assert code == 1 and out.splitlines()[:3] == [
        "not as written, or not following on the line before: 1 lines (2)",
        "they were changed, or lines before them are missing, doubled or out of place",
        "5 plans, all hashes equal",
    ]
    code, out = invoke(str(tmp_path / "steps.jsonl"), "--json")
    found = json.loads(out)
    assert (code, found["equal"], found["changed_lines"], found["difference"]) == (1, False, [2], None)


def test_another_version_is_told_where_plans_differ(plans: list[tuple[float, Plan]], tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    altered(unchecked(path), '"jaxserve": "', '"jaxserve": "9.')
    code, out = invoke(str(path))
    assert code == 0 and out.startswith("5 plans, all hashes equal\n")
    altered(path, plans[1][1].digest, "0" * 32)
    code, out = invoke(str(path))
    assert code == 1 and out.splitlines()[1].startswith("the log was written by another jaxserve (9.")


def test_a_log_without_plans_says_so(tmp_path: Path):
    with StepLog(tmp_path / "steps.jsonl") as log:
        play(Continuous(), State.of(Paged.of(4, 4)), [], watch=log)
    code, out = invoke(str(tmp_path / "steps.jsonl"))
    said = ["the log has no plan, so nothing was compared", "2 lines, each as it was written, to the end of the log"]
    assert (code, out.splitlines()) == (0, said)
