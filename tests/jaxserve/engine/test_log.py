"""What an engine logs can be replayed without it, and sums up to what the engine says of its steps. Oracle: the run that was logged."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.policy import Policy
from jaxserve.speculative.ngram import NGram
from jaxserve.steplog.replay import replay
from jaxserve.steplog.summary import Summary
from jaxserve.steplog.writer import StepLog
from models.errors import UserError
from tests.jaxserve.engines import ALL_KIT, LINK, PLAIN_KIT, SLOTS_KIT, Books, Kit, engine, numbered, run, seated_right
from tests.jaxserve.proofs import FIVE, proved


@pytest.mark.parametrize(
    ("policy", "kit", "prefix", "drafter"),
    [
        (Continuous(Limits(4, ahead=1)), PLAIN_KIT, True, None),
        (Chunked(Limits(4), 12), ALL_KIT, False, NGram(2)),
        (Chunked(Limits(4), 12, 3), ALL_KIT, True, NGram(2)),
        (Disaggregated(LINK, Limits(4), budget=6), PLAIN_KIT, True, None),
        (Continuous(Limits(4)), SLOTS_KIT, False, None),
    ],
)
def test_a_log_of_an_engine(policy: Policy, kit: Kit, prefix: bool, drafter: NGram | None, tmp_path: Path):
    """Eight requests that repeat each other, of which one goes away; memory is short where there are pages."""
    path, books, seen, again = tmp_path / "steps.jsonl", Books(), Summary(), Summary()
    workers = 2 if isinstance(policy, Disaggregated) else 1
    lent = None if kit.kind == "contiguous" else 12
    with StepLog(path) as log:
        watch = Observers(books, seen, log)
        served = engine(policy, kit, prefix=prefix, lent=lent, drafter=drafter, workers=workers, books=watch)
        handles = []
        for i in range(8):
            sizes = SamplingParams(max_tokens=3 + i, n=1 + (i == 3), ignore_eos=True)
            handles.append(served.submit(numbered(i % 3, 5 + i % 3), sizes))
            served.step()
        served.abort(handles[5])
        run(served)
    found = replay(path, again)
    assert found.equal and found.closed, found
    assert (found.cut, found.flying, found.unfinished, found.untold) == (None, (), 0, None)
    assert found.lines["stepped"] == found.lines["folded"] > 0
    assert found.plans >= len(books.plans) > 0
    assert again.to_json("monotonic") == seen.to_json("monotonic")
    sums, records = again.to_json("monotonic"), served.records
    assert sums["clocked"]["steps"] == len(records) == sums["steps"]
    assert sums["tokens"]["drawn"] == sum(record.drawn for record in records)
    for kind in ("prefill", "decode", "draft"):
        assert sums["tokens"][kind] == sum(getattr(record, kind) for record in records)


def test_seeds_are_in_the_log_and_in_a_snapshot(tmp_path: Path):
    """Seeds by hand: the second and third request draw without a seed of their own; sample 1 is its seed and 0x9E3779B9 on, mod 2**32."""
    path, seeds = tmp_path / "steps.jsonl", iter([41, 42])
    with StepLog(path) as log:
        one = engine(Continuous(Limits(rows=4)), books=log, seeds=lambda: next(seeds))
        greedy, drawn = SamplingParams(max_tokens=9, ignore_eos=True), SamplingParams(1.0, max_tokens=9, ignore_eos=True)
        for params in (greedy, drawn, dataclasses.replace(drawn, n=2), dataclasses.replace(drawn, seed=3)):
            one.submit(numbered(1, 5), params)
        snapshot = json.loads(json.dumps(one.snapshot()))
        run(one)
    assert [asked["params"]["seed"] for asked in snapshot["requests"]] == [None, 41, 42, 3]
    assert [line.get("seed") for line in submitted(path)] == [None, 41, 42, 3]
    assert (replay(path, Observer()).difference, replay(path, Observer()).cut) == (None, None)
    with StepLog(path) as log:
        two = engine(Continuous(Limits(rows=4)), books=log, seeds=lambda: 1 / 0)  # nobody asks for any
        two.restore(snapshot)
        for _ in range(4):
            two.step()
        half = two.snapshot()
    with StepLog(path) as log:
        three = engine(Continuous(Limits(rows=4)), books=log, seeds=lambda: 1 / 0)
        handles = three.restore(half)
        run(three)
    assert [line.get("seed") for line in submitted(path)] == [None, 41, 42, (42 + 0x9E3779B9) % 2**32, 3]
    for handle in handles.values():
        proved(handle)


def submitted(path: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["event"] == "submitted"]


def test_an_engine_is_replayed_from_its_log(tmp_path: Path):
    """Law 6: the scheduler, told the same again, decides the same."""
    for policy, kit, more in (
        (Chunked(Limits(rows=4, ahead=1), 7), PLAIN_KIT, {"prefix": True, "lent": 12}),
        (Continuous(Limits(rows=4), 3), ALL_KIT, {"drafter": NGram(2)}),
        (Disaggregated(LINK, Limits(rows=4)), PLAIN_KIT, {"workers": 3}),
    ):
        path = tmp_path / "log.jsonl"
        with StepLog(path) as log:
            one = engine(policy, kit, books=log, **more)
            handles = [one.submit(numbered(i % 2, 9), SamplingParams(max_tokens=9, seed=i, n=1 + i % 3)) for i in range(7)]
            for turn in range(12):
                one.step()
                if turn == 5:
                    one.abort(handles[3])
            run(one)
        found = replay(path, Observer())
        assert found.equal and found.plans >= one.status().steps > 10, found


class Filling(io.StringIO):
    """A disk that has room for so many lines."""

    def __init__(self, lines: int):
        super().__init__()
        self.left = lines

    def write(self, text: str) -> int:
        if not self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= 1
        return super().write(text)


def test_a_log_that_can_not_be_written_says_so():
    with pytest.raises(UserError, match="can't be written further: No space left on device"):
        engine(Continuous(Limits(rows=2)), books=StepLog(Filling(0)))


@pytest.mark.parametrize("lines", range(3, 16))
def test_a_log_that_fills_the_disk_loses_no_token(lines: int):
    """Whichever line it is that finds no room: what has come stays, the next decision is refused, and a snapshot goes on elsewhere."""
    full = engine(Continuous(Limits(rows=2)), books=StepLog(Filling(lines)))
    handles = [full.submit(numbered(i, 5), FIVE) for i in range(2)]
    came: list[int] = []
    with pytest.raises(UserError, match="the step log can't be written further: No space left on device; make room"):
        while not full.idle:
            came += (token for piece in full.step() for token in piece.tokens)
    assert sorted(came) == sorted(token for handle in handles for token in handle.answers[0].tokens)
    seated_right(full)
    with pytest.raises(UserError, match="can't be written further"):
        full.submit(numbered(9, 5), FIVE)
    other = engine(Continuous(Limits(rows=2)))
    restored = other.restore(full.snapshot())
    run(other)
    for handle in handles:
        proved(restored.get(handle.id, handle))
