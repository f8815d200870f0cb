"""Requests as plain data. Oracles: the same requests without an interruption; JSON itself; for damage, what was damaged."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from jaxserve.engine.engine import Engine
from jaxserve.engine.request_handle import RequestHandle
from jaxserve.engine.snapshot import read
from jaxserve.programs.buckets import Buckets
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.request import QueueFull
from models.errors import UserError
from tests.jaxserve.engines import ALL_KIT, Clock, engine, model, nothing_left, numbered, run
from tests.jaxserve.proofs import greedy_answer, proved

ASKED = [
    SamplingParams(max_tokens=9, ignore_eos=True, logprobs=2, prompt_logprobs=1),
    SamplingParams(0.9, seed=4, max_tokens=9, n=3, logit_bias={7: 2.5, 3: -100}, min_tokens=4, stop=["AB", "Z"], stop_ids=[9]),
    SamplingParams(max_tokens=9, repetition_penalty=1.5, presence_penalty=0.2, ignore_eos=True),
    SamplingParams(1.2, top_k=9, top_p=0.9, min_p=0.01, max_tokens=9, include_stop=True, logprobs=0),
]


def begun(turns: int, ahead: int = 0) -> tuple[Engine, list[RequestHandle]]:
    one = engine(Continuous(Limits(rows=4, ahead=ahead)), ALL_KIT)
    handles = [one.submit(numbered(i, 9 + i), params, priority=1 + i % 2) for i, params in enumerate(ASKED)]
    for _ in range(turns):
        one.step()
    return one, handles


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("turns", [0, 1, 2, 5, 8])
def test_another_engine_goes_on_and_the_first_is_none_the_wiser(turns: int, ahead: int):
    first, handles = begun(turns, ahead)
    snapshot = first.snapshot()
    text = json.dumps(snapshot)
    second = engine(Chunked(Limits(rows=4), 7), ALL_KIT, prefix=True)
    going = {handle.id: handle for handle in handles if not handle.finished}
    restored = second.restore(json.loads(text))
    assert set(restored) == set(going)
    run(first)
    assert json.dumps(snapshot) == text, "what goes on changes a snapshot that was taken"
    run(second)
    for id, new in restored.items():
        old = going[id]
        assert (new.prompt, new.params, new.priority) == (old.prompt, old.params, old.priority)
        for before, after in zip(old.answers, new.answers, strict=True):
            assert (after.tokens, after.text, after.finish) == (before.tokens, before.text, before.finish)
        assert [[each.token for each in sample] for sample in new.logprobs] == [
            [each.token for each in sample] for sample in old.logprobs
        ]
        proved(new)
    nothing_left(second)


def test_a_snapshot_of_a_restored_engine_is_the_same():
    """But for ids, which are the engine's own."""
    first, _ = begun(4)
    snapshot = json.loads(json.dumps(first.snapshot()))
    second = engine(Continuous(Limits(rows=4)), ALL_KIT)
    second.restore(snapshot)
    again = json.loads(json.dumps(second.snapshot()))
    for one in (*snapshot["requests"], *again["requests"]):
        del one["id"]
    assert again == snapshot


def test_nothing_is_an_empty_snapshot():
    one = engine(Continuous(Limits(rows=4)))
    assert one.restore(json.loads(json.dumps(one.snapshot()))) == {}
    nothing_left(one)


def test_only_who_has_not_begun_can_be_too_late():
    """One runs its prompt, one waits; both would be dropped after a second."""
    clock = Clock()
    one = engine(Chunked(Limits(rows=1), 4), clock=clock)
    one.submit(numbered(0, 20), SamplingParams(max_tokens=3, ignore_eos=True), timeout=1)
    one.submit(numbered(1, 20), SamplingParams(max_tokens=3, ignore_eos=True), timeout=1)
    one.step()
    clock.now += 0.5
    first, second = one.snapshot()["requests"]
    assert first["timeout"] is None and not first["answers"][0]
    assert 0.4 < second["timeout"] < 0.5
    later = engine(Continuous(Limits(rows=1)), clock=clock)
    restored = later.restore(one.snapshot())
    clock.now += 5
    run(later)
    assert restored[0].answers[0].tokens == greedy_answer(numbered(0, 20), 3)
    assert restored[1].answers[0].finish == ("timeout", None)


DAMAGE: list[tuple[str, Callable[[Any], Any], str]] = [
    ("no snapshot", lambda s: [1], "the snapshot has format 'list'; this version reads 1"),
    ("no format", lambda s: {}, "the snapshot has format None"),
    ("later format", lambda s: s | {"format": 2}, "the snapshot has format 2"),
    ("other model", lambda s: s | {"model": s["model"] | {"parameters": 1}}, "this engine serves .*; serve that model"),
    ("no requests", lambda s: {k: v for k, v in s.items() if k != "requests"}, "damaged .*requests"),
    ("requests no list", lambda s: s | {"requests": 5}, "damaged"),
    ("request no object", lambda s: s | {"requests": [5]}, "damaged"),
    ("one twice", lambda s: s | {"requests": s["requests"] * 2}, "damaged .*same id"),
]


def changed(**fields: Any) -> Callable[[Any], Any]:
    return lambda s: s | {"requests": [s["requests"][0] | fields, *s["requests"][1:]]}


DAMAGE += [
    ("unknown setting", changed(params={"speed": 1}), "damaged"),
    ("bad setting", changed(params=dataclasses.asdict(SamplingParams()) | {"temperature": -1}), "temperature is -1"),
    ("prompt no list", changed(prompt=None), "damaged"),
    ("prompt of text", changed(prompt=["x"]), "damaged"),
    ("empty prompt", changed(prompt=[], prompt_logprobs=[]), "the prompt is empty"),
    ("prompt past the vocabulary", changed(prompt=[500] * 9), "the prompt has token 500"),
    ("answer past the vocabulary", changed(answers=[[500]], logprobs=[[[500, 0.0, []]]]), "damaged .*past the vocabulary"),
    ("more answers", changed(answers=[[1], [2]]), "damaged .*has 2 answers and asks for 1"),
    ("unknown end", changed(ended=["sleep"]), "damaged .*unknown end"),
    ("answer without its logprobs", changed(logprobs=[[]]), "damaged .*log-probabilities of other tokens"),
    ("prompt without its logprobs", changed(prompt_logprobs=[]), "damaged .*log-probabilities of another prompt"),
    (
        "answer beyond its end",
        changed(answers=[[5] * 12], logprobs=[[[5, 0.0, []]] * 12]),
        "an answer of 12 tokens, which ends after 9 here",
    ),
]


@pytest.mark.parametrize(("damage", "message"), [case[1:] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
def test_damage_is_named_and_changes_nothing(damage: Callable[[Any], Any], message: str):
    first, _ = begun(3)
    snapshot = damage(json.loads(json.dumps(first.snapshot())))
    second = engine(Continuous(Limits(rows=4)), ALL_KIT)
    with pytest.raises(UserError, match=message) as error:
        second.restore(snapshot)
    assert "\n" not in str(error.value)
    nothing_left(second)


def test_a_snapshot_that_does_not_fit_changes_nothing():
    first, _ = begun(2)
    snapshot = first.snapshot()
    small = engine(Continuous(Limits(rows=4, context=16)), ALL_KIT)
    with pytest.raises(UserError, match="the limit is 16; shorten it"):
        small.restore(snapshot)
    nothing_left(small)
    without = engine(Continuous(Limits(rows=4)))
    with pytest.raises(UserError, match=r"asks for .* logprobs|asks for penalties|biased"):
        without.restore(snapshot)
    nothing_left(without)
    full = engine(Continuous(Limits(rows=4, queue=QueueRule(size=1))), ALL_KIT)
    with pytest.raises(QueueFull):
        full.restore(snapshot)
    nothing_left(full)
    narrow = engine(Continuous(Limits(rows=2)), ALL_KIT)
    with pytest.raises(UserError, match="3 samples, but at most 2 rows"):
        narrow.restore(engine_with_one_of_three().snapshot())
    nothing_left(narrow)


def engine_with_one_of_three() -> Engine:
    one = engine(Continuous(Limits(rows=4)), ALL_KIT)
    one.submit(numbered(0, 5), SamplingParams(n=3))
    return one


def test_reading_does_not_change_what_is_read():
    first, _ = begun(4)
    snapshot = json.loads(json.dumps(first.snapshot()))
    before = copy.deepcopy(snapshot)
    asked = read(model(), snapshot)
    asked[0].answers[0].append(1)
    assert snapshot == before


def test_the_ladder_of_the_other_engine_may_be_another():
    """Plain requests, with small prefills then and large ones now."""
    first = engine(Continuous(Limits(rows=4)))
    handles = [first.submit(numbered(i, 9), SamplingParams(max_tokens=8, ignore_eos=True)) for i in range(3)]
    for _ in range(3):
        first.step()
    second = engine(Continuous(Limits(rows=3), 3), ALL_KIT)
    assert isinstance(second.ladder, Buckets) and second.ladder != first.ladder
    restored = second.restore(first.snapshot())
    run(second)
    for handle in handles:
        assert restored[handle.id].answers[0].tokens == greedy_answer(handle.prompt, 8)
