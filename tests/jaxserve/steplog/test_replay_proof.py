"""What a replay proves. Oracle: a log is changed in every field of every kind of line, and in the number and order of its lines; the
replay has to say that something is wrong, or to name the field among those that it took as given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxserve.kv.memory import Memory
from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.replay import verdict
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import StepResult
from jaxserve.scheduling.transfer import Link
from jaxserve.steplog.events import EVENTS, GIVEN, Header
from jaxserve.steplog.replay import Replay, replay
from jaxserve.steplog.writer import StepLog
from models.errors import UserError
from tests.jaxserve.scheduling.clock import one_token, play
from tests.jaxserve.steplogs import Timed, timed_log, unchecked


def stopping(plan: Plan) -> StepResult:
    """All drafts are right; a row that stands at token 6 stops; and every row that goes on has two drafts."""
    tokens = tuple([tuple(range(7, 7 + draws)) for draws in plan.draws])
    ended = {id: "stop" for id, start, draws in zip(plan.ids, plan.starts, plan.draws, strict=True) if draws and start >= 6}
    return StepResult(tokens, ended, {id: 2 for id in plan.ids if id not in ended})


def written(path: Path, policy: Policy, *memories: Memory, run: Callable[[Plan], StepResult] = one_token) -> Path:
    """Prompts that begin alike, one with two samples, one that is too long, one that waits too long, one whose client goes away."""
    requests = [
        Request(0, (1, 2, 3, 4, 5), 4),
        Request(1, (1, 2, 3, 4, 6, 7), 3, samples=2, priority=2),
        Request(3, tuple(range(90)), 2),
        Request(4, (1, 2, 3, 4, 5, 8), 3, arrival=2.0, reuse=False),
        Request(5, (9,), 9, arrival=2.5, deadline=2.75, priority=3),
        Request(6, (1, 2, 3), 5, arrival=3.0, seed=7),
    ]
    with StepLog(path) as log:
        watch = Observers(log, Timed(log))
        play(policy, State.of(*memories), requests, lambda plan: 1.0 + plan.steps / 4, run, cancels=[(6.5, 6)], watch=watch)
    return path


LOGS: dict[str, Callable[[Path], Path]] = {
    "drafts": lambda path: written(path, Chunked(Limits(2, queue=QueueRule(4)), 6), Paged.of(6, 3, prefix=True), run=stopping),
    "several steps": lambda path: written(path, Continuous(Limits(4, ahead=1), 2), Paged.of(6, 3)),
    "preemption": timed_log,
    "slots": lambda path: written(path, Continuous(Limits(2)), Slots.of(2, 12)),
    "hand-offs": lambda path: written(
        path, Disaggregated(Link(10, 40.0, 0.5), Limits(2)), Paged.of(9, 3, prefix=True), Paged.of(9, 3, prefix=True)
    ),
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of all logs."""
    folder = tmp_path_factory.mktemp("logs")
    return {name: write(folder / f"{name}.jsonl").read_text() for name, write in LOGS.items()}


def replayed(path: Path, lines: list[str]) -> Replay | None:
    """None where the log is refused, which is exit code 2."""
    path.write_text("".join(lines))
    try:
        return replay(path, Observer())
    except UserError:
        return None


def others(value: Any) -> Iterator[Any]:
    """The value with one thing in it changed, taken away or added."""
    match value:
        case bool():
            yield not value
        case int() | float():
            yield from (value + 1, value + 10**30 if isinstance(value, int) else -value - 0.25)
        case str():
            yield "inf" if value != "inf" else "-inf"
        case None:
            yield 0.5
        case list():
            yield from (value[:-1], [*value, 0])
            for i, item in enumerate(value[:1]):
                yield from ([*value[:i], other, *value[i + 1 :]] for other in others(item))
        case dict():
            yield {**value, "1": "stop"}
            for key, item in value.items():
                yield from ({**value, key: other} for other in others(item))


def changed(lines: list[dict[str, Any]]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """(index of the line, field, the line with that field changed): each field of the first and the last line that has it."""
    where: dict[tuple[str, str], list[int]] = {}
    for i, line in enumerate(lines):
        for field in line:
            where.setdefault((line["event"], field), []).append(i)
    for (_, field), places in where.items():
        for i in sorted({places[0], places[-1]}):
            line = lines[i]
            yield i, field, {name: value for name, value in line.items() if name != field}
            yield from ((i, field, {**line, field: other}) for other in others(line[field]))


def compact(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":")) + "\n"


@pytest.mark.parametrize("name", LOGS)
def test_the_logs_replay(name: str, texts: dict[str, str], tmp_path: Path):
    found = replayed(tmp_path / "steps.jsonl", texts[name].splitlines(keepends=True))
    assert found is not None and found.equal and found.closed and found.plans > 5, found
    assert (found.changed, found.flying, found.unfinished, found.untold) == ((), (), 0, None)
    assert f"{texts[name].count(chr(10))} lines, each as it was written, to the end of the log" in list(verdict(found))


def test_every_field_is_in_some_log(texts: dict[str, str]):
    """Or the tests below would say nothing of it."""
    seen = {(line["event"], field) for text in texts.values() for line in map(json.loads, text.splitlines()) for field in line}
    for event, kind in {Header.event: Header, **EVENTS}.items():
        fields = kind.__annotations__.keys() - {"event"}
        assert not (missing := [field for field in fields if (event, field) not in seen]), (event, missing)
        assert set(GIVEN.get(event, ())) <= fields


@pytest.mark.parametrize("name", LOGS)
def test_a_field_that_was_changed_is_found_or_named(name: str, texts: dict[str, str], tmp_path: Path):
    """Without checks, as older versions wrote logs: so what is worked out again has to tell. Defaults may stand in a line, or not."""
    path = tmp_path / "steps.jsonl"
    path.write_text(texts[name])
    lines = unchecked(path).read_text().splitlines(keepends=True)
    plain, tried = [json.loads(line) for line in lines], 0
    for i, field, line in changed(plain):
        found = replayed(path, [*lines[:i], compact(line), *lines[i + 1 :]])
        tried += 1
        if found is None or found.difference or field in GIVEN[plain[i]["event"]]:
            continue
        pytest.fail(f"line {i + 1}, {field}: {plain[i]} passes as {line}")
    assert tried > 100


@pytest.mark.parametrize("name", LOGS)
def test_a_field_that_was_changed_is_found(name: str, texts: dict[str, str], tmp_path: Path):
    """Whatever it is, where lines have checks."""
    lines = texts[name].splitlines(keepends=True)
    for i, field, line in list(changed([json.loads(line) for line in lines]))[::4]:
        found = replayed(tmp_path / "steps.jsonl", [*lines[:i], compact(line), *lines[i + 1 :]])
        assert found is None or not found.equal, (i + 1, field, line)
        if found and not found.difference:
            assert i + 1 in (found.changed or ())


def rearranged(lines: list[str]) -> Iterator[tuple[str, int, list[str]]]:
    """Every line but the first left out, doubled, or in the other order with the next."""
    for i in range(1, len(lines)):
        yield "left out", i, lines[:i] + lines[i + 1 :]
        yield "doubled", i, [*lines[: i + 1], *lines[i:]]
        if i + 1 < len(lines):
            yield "swapped", i, [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]


@pytest.mark.parametrize("name", LOGS)
def test_a_line_out_of_place_is_found(name: str, texts: dict[str, str], tmp_path: Path):
    lines = texts[name].splitlines(keepends=True)
    for what, i, others in rearranged(lines):
        found = replayed(tmp_path / "steps.jsonl", others)
        assert found is None or not found.equal or (not found.closed and i == len(lines) - 1), (what, i + 1)


@pytest.mark.parametrize("name", LOGS)
def test_a_line_of_an_old_log_that_is_left_out_or_doubled_is_found(name: str, texts: dict[str, str], tmp_path: Path):
    """But for those that decided nothing, of which the replay says that they may be missing: a client goes away; a request is refused, or
    comes and goes without running; a question comes to nothing."""
    path = tmp_path / "steps.jsonl"
    path.write_text(texts[name])
    lines = unchecked(path).read_text().splitlines(keepends=True)
    ran = {id for line in map(json.loads, lines) for name in ("ids", "expired") for id in line.get(name, ())}
    for what, i, others in rearranged(lines):
        found, line = replayed(path, others), json.loads(lines[i])
        if found is None or not found.equal or found.flying or found.unfinished or found.untold is not None:
            continue
        kinds = (line["event"], json.loads(lines[i + 1])["event"]) if what == "swapped" else (line["event"],)
        idle = not line["ids"] if "ids" in line else line["event"] == "submitted" and line["id"] not in ran
        harmless = "cancelled" in kinds or idle or what == "swapped"
        assert harmless, (what, i + 1, line)
        assert any("without checks" in said for said in verdict(found))


@pytest.mark.parametrize("name", LOGS)
def test_a_log_without_its_end_says_so(name: str, texts: dict[str, str], tmp_path: Path):
    """Cut after any line. Without checks: whatever was still to be decided or told is named."""
    path = tmp_path / "steps.jsonl"
    lines = texts[name].splitlines(keepends=True)
    for stop in range(1, len(lines)):
        found = replayed(path, lines[:stop])
        assert found is not None and found.equal and not found.closed
        assert any("the log was not closed" in said for said in verdict(found))
    path.write_text(texts[name])
    lines = unchecked(path).read_text().splitlines(keepends=True)
    for stop in range(2, len(lines)):
        found = replayed(path, lines[:stop])
        assert found is not None and found.equal and not found.closed
        later = [json.loads(line) for line in lines[stop:]]
        live = found.flying or found.unfinished or found.untold is not None
        assert live or not any(line["event"] in ("folded", "stepped") for line in later[:1]), stop


def test_lines_that_lost_their_checks_are_named(texts: dict[str, str], tmp_path: Path):
    """The first ones, one in the middle, and one that was written anew by another program, which puts spaces in."""
    lines = texts["slots"].splitlines(keepends=True)

    def bare(line: str) -> str:
        return compact({name: value for name, value in json.loads(line).items() if name != "check"})

    for places in ([0, 1, 2], [0], [4]):
        others = [bare(line) if i in places else line for i, line in enumerate(lines)]
        found = replayed(tmp_path / "steps.jsonl", others)
        assert found is not None and not found.equal and found.difference is None
        named = [i + 1 for i in places]
        assert list(found.changed or ()) == (named if places[0] == 0 else [*named, places[-1] + 2])
    found = replayed(tmp_path / "steps.jsonl", [*lines[:3], json.dumps(json.loads(lines[3])) + "\n", *lines[4:]])
    assert found is not None and found.changed == (4, 5)
