"""An engine whose device raises says so at every call, and what it served goes on elsewhere; threads take turns.

Oracles: the answers of an engine that does not fail, and of one thread.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jaxserve.engine.engine import Engine, EngineFailed
from jaxserve.engine.model_runner import InFlightStep
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.static import Static
from tests.jaxserve.engines import ROWS, engine, nothing_left, numbered, run

LONG = SamplingParams(max_tokens=8, ignore_eos=True)
POLICIES = (Continuous(Limits(rows=4, ahead=1)), Chunked(ROWS, budget=8), Static(ROWS))


class Lost(Exception):
    """What a device might say."""


def break_at(one: Engine, name: str, call: int, error: type[BaseException] = Lost) -> None:
    """The engine's device raises at the `call`-th time that its executor is asked for `name`."""
    executor, calls = one._loop._executors[0], 0
    inner: Callable[[InFlightStep], Any] = getattr(executor, name)

    def broken(flight: InFlightStep) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise error("INTERNAL: the device is gone\nand more of it")
        return inner(flight)

    setattr(executor, name, broken)


def turns(one: Engine) -> None:
    for _ in range(100):
        one.step()
        one.wait()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize(("name", "call"), [("fill", 2), ("dispatch", 1), ("dispatch", 3), ("wait", 2), ("learn", 1)])
def test_a_failed_engine_says_so_at_every_call_and_another_one_goes_on(policy: Any, name: str, call: int):
    prompts = [numbered(i, 5 + i) for i in range(6)]  # more than rows: some wait
    whole = engine(policy)
    expected = [whole.submit(prompt, LONG) for prompt in prompts]
    run(whole)

    one = engine(policy)
    handles = [one.submit(prompt, LONG) for prompt in prompts]
    break_at(one, name, call)
    with pytest.raises(Lost):
        turns(one)
    assert isinstance(one.failure, Lost)
    for ask in (
        one.step,
        one.wait,
        lambda: one.submit([1], LONG),
        lambda: one.check([1], LONG),
        lambda: one.restore({}),
        lambda: next(one.run()),
        lambda: list(one.stream(handles[0])),
    ):
        with pytest.raises(
            EngineFailed, match=r"the engine has failed: Lost: INTERNAL: the device is gone; make a new one"
        ) as said:
            ask()
        assert said.value.__cause__ is one.failure
    assert one.idle and not one.live and one.status().total_pages
    assert {handle.error for handle in handles} == {"Lost: INTERNAL: the device is gone"}
    assert all(handle.finished and handle.answers[0].finish.reason == "error" for handle in handles)  # type: ignore[union-attr]
    one.abort(handles[0])  # its client goes away: nothing happens

    other = engine(policy)
    again = other.restore(json.loads(json.dumps(one.snapshot())))
    run(other)
    assert [again[handle.id].answers[0].tokens for handle in handles] == [handle.answers[0].tokens for handle in expected]
    nothing_left(other)


def test_an_answer_that_had_ended_before_stays_as_it_was():
    one = engine(Continuous(ROWS))
    short, long = one.submit(numbered(0, 5), SamplingParams(max_tokens=1, ignore_eos=True)), one.submit(numbered(1, 5), LONG)
    while not short.finished:
        one.step()
    break_at(one, "wait", 1)
    with pytest.raises(Lost):
        turns(one)
    assert short.error is None and short.answers[0].finish.reason == "length"  # type: ignore[union-attr]
    assert long.error and [request["id"] for request in one.snapshot()["requests"]] == [long.id]
    assert "".join(piece.text for piece in one.stream(short)) == short.answers[0].text


def test_ctrl_c_within_a_step_is_a_failure_too():
    one = engine(Continuous(ROWS))
    one.submit(numbered(0, 5), LONG)
    break_at(one, "wait", 2, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        turns(one)
    with pytest.raises(EngineFailed, match="KeyboardInterrupt"):
        one.step()


def test_threads_on_one_engine_take_turns():
    prompts = [numbered(i, 4 + i % 5) for i in range(12)]
    whole = engine(Continuous(ROWS))
    expected = [whole.submit(prompt, LONG) for prompt in prompts]
    run(whole)

    one, found, errors = engine(Continuous(ROWS)), dict[int, list[int]](), list[BaseException]()

    def client(number: int) -> None:
        try:
            for i in range(number, len(prompts), 4):
                handle = one.submit(prompts[i], LONG)
                found[i] = [token for piece in one.stream(handle) for token in piece.tokens]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [found[i] for i in range(len(prompts))] == [handle.answers[0].tokens for handle in expected]
    nothing_left(one)
