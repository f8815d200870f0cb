"""Requests that are all known, on an engine. Oracle: `tests.oracle` for tokens, and the engine's own books for what stays behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxserve.engine.batch_runner import BatchRunner
from jaxserve.engine.build import choose
from jaxserve.engine.config import EngineConfig
from jaxserve.engine.engine import Engine
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from tests.jaxserve.shared_programs import expected, shared

__all__ = ["shared"]

PROMPTS = ("hello", "a", "good morning")
SIX = SamplingParams(max_tokens=6)


@pytest.fixture
def engine(shared: Path) -> Iterator[Engine]:
    """Two rows, and a queue for two; at its end nothing may be left."""
    chosen = choose(EngineConfig("random:tiny", dtype="float32", ladder=shared, prefix_cache=False, queue_size=2))
    engine = chosen.engine(chosen.load())
    yield engine
    assert engine.snapshot()["requests"] == [] and engine.status().pages == 0
    list(engine.run())  # a step may still be under way for those who were given up
    assert engine.idle


def run(offline: BatchRunner) -> list[tuple[int, ...]]:
    ended = [number for pieces in offline.steps() for number in offline.ended(pieces)]
    assert sorted(ended) == list(range(len(offline.handles))) and not offline.live
    return [tuple(handle.answers[0].tokens) for handle in offline.handles]


def test_all_to_their_ends(engine: Engine):
    """Five prompts, a queue for two: the rest waits outside, and nothing is refused."""
    asks = [*PROMPTS, *PROMPTS[:2]]
    offline = BatchRunner(engine, [(prompt, SIX) for prompt in asks])
    assert len(offline.handles) == 2 and offline.waiting == 3
    assert run(offline) == [expected(prompt, 6) for prompt in asks]
    assert offline.waiting == 0


def test_others_run_beside(engine: Engine):
    other = engine.submit("b", SamplingParams(max_tokens=20, ignore_eos=True))
    offline = BatchRunner(engine, [("hello", SIX)])
    assert run(offline) == [expected("hello", 6)]
    assert not other.finished
    for _ in engine.stream(other):
        pass
    assert len(other.answers[0].tokens) == 20


def test_nothing_to_do(engine: Engine):
    assert run(BatchRunner(engine, [])) == []


def test_a_request_that_cannot_be_served_is_named(engine: Engine):
    """And the one before it does not stay."""
    with pytest.raises(UserError, match=r"^prompt 2: the prompt is empty; give it at least one token$"):
        BatchRunner(engine, [("hello", SIX), ([], SIX)])


def test_whoever_leaves_early_gives_up_the_rest(engine: Engine):
    offline = BatchRunner(engine, [(prompt, SIX) for prompt in PROMPTS])
    steps = offline.steps()
    next(steps)
    steps.close()
    assert [handle.answers[0].finish for handle in offline.handles] == [("abort", None)] * 2


def test_someone_else_takes_them_out(engine: Engine):
    offline = BatchRunner(engine, [("hello", SIX)])
    for _ in offline.steps():
        engine.abort(offline.handles[0])
    assert offline.handles[0].finished


def test_ctrl_c_is_heard_between_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    """It comes within the second step, whose tokens all arrive; then everything is given up, and the engine can go on."""
    steps, step = [], engine.step

    def interrupted() -> Any:
        steps.append("begun")
        if len(steps) == 3:
            signal.raise_signal(signal.SIGINT)
        pieces = step()
        steps.append("ended")
        return pieces

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(engine, "step", interrupted)
        offline = BatchRunner(engine, [("hello", SIX), ("a", SIX)])
        with pytest.raises(KeyboardInterrupt):
            for _ in offline.steps():
                pass
        assert steps == ["begun", "ended"] * 2
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert [tuple(handle.answers[0].tokens) for handle in offline.handles] == [expected(p, 6)[:2] for p in ("hello", "a")]
    monkeypatch.undo()
    assert run(BatchRunner(engine, [("good morning", SIX)])) == [expected("good morning", 6)]
