"""A load on an engine of this process, on a virtual clock. Oracles: the engine's own handles and records, and what two tokens must be."""

from __future__ import annotations

import itertools
import math
import signal
from typing import Any

import pytest

from jaxserve.engine.request_handle import Piece
from jaxserve.load.client import Item
from jaxserve.load.engine_client import EngineClient
from jaxserve.load.measure import Server, measure, play
from jaxserve.load.parts import STAGES, split
from jaxserve.load.schedule import Closed, Open
from jaxserve.load.source import Alphabet
from jaxserve.load.spec import LoadSpec
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.policy import Policy
from tests.jaxserve import engines, proofs


def client(policy: Policy, **options: Any) -> EngineClient:
    clock = engines.Clock()
    made = EngineClient(
        lambda recorder: engines.engine(policy, books=recorder, clock=clock, **options), clock=clock, sleep=clock.sleep
    )
    made.begin()
    return made


def items(n: int, prompt: int = 5, output: int = 3) -> Any:
    return iter([Item(i, tuple(engines.numbered(i, prompt)), output) for i in range(n)])


def letters(key: int) -> Alphabet:
    return Alphabet(engines.VOCAB, key, engines.EOS)


def test_every_time_is_there_and_the_parts_sum():
    server = client(Continuous(Limits(rows=2)))
    with server:
        records, why = play(server, Open(iter([0.0, 0.01, 0.5])), items(3))
    assert not why and [record.reason for record in records] == ["length"] * 3
    for record in records:
        assert (record.prompt, record.output, len(record.tokens)) == (5, 3, 3)
        assert [part.name for part in split(record)] == list(STAGES) and all(part.seconds >= 0 for part in split(record))
        assert math.fsum(part.seconds for part in split(record)) == pytest.approx(record.ttft)
        assert record.prefilled < record.tokens[0]  # the step had ended before its client was told
    assert records[2].intended == 0.5 and records[2].sent == pytest.approx(0.5, abs=0.01)


def test_tokens_are_the_models():
    """What the load drew is what the dense model says, so it was this work that was measured."""
    server = client(Continuous(Limits(rows=2)))
    with server:
        server.send(Item(7, tuple(engines.numbered(3, 6)), 4), 0.0)
        (sent,) = server._open.values()
        (record,) = server.wait(math.inf)
    assert sent.handle.answers[0].tokens == proofs.greedy_answer(engines.numbered(3, 6), 4) and record.id == 7
    assert sent.handle.token_times[0][0] - server._start == record.prefilled


def test_steps_are_those_of_the_run():
    server = client(Continuous(Limits(rows=2)))
    with server:
        play(server, Closed(2), items(4))
        play(server, Closed(2), items(4))
    steps, records = server.known().steps, list(server.engine.records)
    assert 0 < len(steps) < len(records) and [step.digest for step in steps] == [r.digest for r in records[-len(steps) :]]
    assert all(0 < step.at < server.clock() for step in steps) and sum(step.drawn for step in steps) == 12
    assert server.known().pool == (engines.UNITS, engines.PAGE, "paged") and len(server.known().programs) == 4
    assert server.known().settings["rows"] == 2 and server.known().settings["policy"] == "continuous"


def test_an_arrival_is_not_slept_through():
    """A policy that waits 10 s for company: who comes meanwhile is submitted when it is due, and makes the batch complete."""
    server = client(Dynamic(Limits(rows=4), preferred=(2,), delay=10.0))
    with server:
        records, _ = play(server, Open(iter([0.0, 1.0])), items(2))
    first, second = sorted(records)
    assert second.sent == pytest.approx(1.0, abs=0.05) and first.started == pytest.approx(1.0, abs=0.05)
    assert first.ready - first.submitted == pytest.approx(1.0, abs=0.05) and second.ready - second.submitted < 0.05
    server = client(Dynamic(Limits(rows=4), preferred=(2,), delay=0.25))
    with server:
        (alone,), _ = play(server, Open(iter([0.0])), items(1))
    assert alone.started - alone.submitted == pytest.approx(0.25, abs=0.02)


def test_refused_and_too_long():
    server = client(Continuous(Limits(rows=1, queue=QueueRule(size=2))))
    with server:
        records, _ = play(server, Open(iter([0.0] * 5)), itertools.chain(items(4), [Item(4, (2,) * 40, 30)]))
    found = {record.id: record for record in records}
    assert [found[i].reason for i in range(5)] == ["length", "length", "refused", "refused", "failed"]
    assert "wait already" in found[2].error and "the limit is 40" in found[4].error and found[2].tokens == ()


def test_ctrl_c_between_steps(monkeypatch: pytest.MonkeyPatch):
    """Hit while a step runs: it is heard after it, nothing is left in the engine, and tokens so far are kept."""
    server = client(Continuous(Limits(rows=2)))
    step, count = server.engine.step, itertools.count()

    def hit() -> list[Piece]:
        if next(count) == 6:
            signal.raise_signal(signal.SIGINT)
        return step()

    monkeypatch.setattr(server.engine, "step", hit)
    with server:
        records, why = play(server, Closed(3), items(100, output=4))
    assert why == "interrupted by Ctrl-C" and server.engine.idle and not server.engine.live and server.idle
    unfinished = [record for record in records if record.reason == "unfinished"]
    assert len(unfinished) == 3 and any(record.tokens for record in unfinished)
    assert [record.id for record in sorted(records)] == list(range(len(records)))
    monkeypatch.undo()
    with server:
        again, why = play(server, Closed(1), items(2))
    assert not why and len(again) == 2


def test_an_engine_that_stops(monkeypatch: pytest.MonkeyPatch):
    server = client(Continuous(Limits(rows=2)))
    step, count = server.engine.step, itertools.count()

    def lost() -> list[Piece]:
        if next(count) == 5:
            raise RuntimeError("the device is lost\nbecause")
        return step()

    monkeypatch.setattr(server.engine, "step", lost)
    with server:
        records, why = play(server, Closed(1), items(100))
    assert why == "the engine stopped: RuntimeError: the device is lost"
    assert [record.reason for record in records] == ["length", "unfinished"] and len(records[1].tokens) > 0


def test_the_same_load_twice_is_warm():
    """The public report: the second run finds what the first has left, and says so; another part of the load doesn't."""
    asked, server = LoadSpec(clients=(1,), requests=3, prompt="9", output="2"), client(Continuous(Limits(rows=2)), prefix=True)
    with server:
        first, second, third = (measure(Server(server, letters), asked, asked.loads[0], part) for part in (0, 0, 1))
    assert [len(run.records) for run in (first, second, third)] == [3, 3, 3]
    assert first.warm == third.warm == 0 and second.warm == 3 * 8  # two pages of 4 of each prompt
    assert second.summary.warm == 24 and second.to_json()["warm"] == 24
    assert [record.cached for record in first.records] == [0, 0, 0] and second.summary.cached_tokens == 24


def test_without_a_cache_it_is_cold():
    asked, server = LoadSpec(clients=(2,), requests=3, prompt="9", output="2"), client(Continuous(Limits(rows=2)))
    with server:
        runs = [measure(Server(server, letters), asked, asked.loads[0]) for _ in range(2)]
    assert [run.warm for run in runs] == [0, 0]
