"""Streamed completions. Oracle: streams as servers write them, with what is to be made of them by hand (dialects.py)."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.load.recorder import ANSWERED, CHUNKS, FAILED, USAGE
from jaxserve.load.sse import Event, Events
from jaxserve.load.stream import Stream
from tests.jaxserve.load.dialects import DIALECTS, chat, text, usage


def read(*events: Any) -> Stream:
    """Each event comes a second after the one before."""
    stream = Stream()
    for i, event in enumerate(events):
        if not stream.broken:
            stream.add(event if isinstance(event, Event) else Event("message", _written(event)), float(i))
    return stream


def _written(event: Any) -> str:
    return event if isinstance(event, str) else json.dumps(event)


def received(wire: bytes, cut: int | None = None) -> Stream:
    """As the client reads it, in one read or in two; the time of an event is its number."""
    stream, events, number = Stream(), Events(), 0
    for part in (wire,) if cut is None else (wire[:cut], wire[cut:]):
        for event in events.feed(part):
            if not stream.broken:
                stream.add(event, float(number))
            number += 1
    stream.close(events.rest(), events.unread, float(number))
    return stream


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects(name: str):
    wire, tokens, output, reason, said = DIALECTS[name]
    whole = received(wire)
    assert (whole.verdict()[0], tuple(whole.times), whole.output) == (reason, tokens, output)
    assert (
        said in whole.verdict()[1]
        and (reason != FAILED or said)
        and (said or not whole.verdict()[1] or "[DONE]" not in str(wire))
    )
    for cut in range(1, len(wire), 7):
        parts = received(wire, cut)
        assert (parts.times, parts.output, parts.verdict(), parts.text) == (whole.times, output, whole.verdict(), whole.text)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_stream_that_is_cut_short(name: str):
    """Wherever the body ends in good order: a record, and an answer only where its end, or its last object whole, was there."""
    wire, tokens, _, _, _ = DIALECTS[name]
    for cut in range(len(wire)):
        stream = received(wire[:cut])
        reason, said = stream.verdict()
        assert stream.times == list(map(float, tokens))[: len(stream.times)] and (reason == FAILED) <= bool(said)
        assert reason not in ANSWERED or b"finish_reason" in wire[:cut]


def test_an_empty_first_chunk_is_no_token():
    """cases.md, second list: the first token at 0.30 s, 5 of them 50 ms apart: 4 gaps, TPOT 0.05 s."""
    stream = Stream()
    stream.add(Event("message", json.dumps(text(""))), 0.0)
    for i in range(5):
        stream.add(Event("message", json.dumps(text("x"))), 0.30 + 0.05 * i)
    for last in (text("", "length"), usage(5), "[DONE]"):
        stream.add(Event("message", _written(last)), 0.51)
    first, *_, end = stream.times
    assert (first, len(stream.times), stream.output) == (0.30, 5, 5) and (end - first) / (stream.output - 1) == pytest.approx(
        0.05
    )


def test_chunks_without_words():
    """Between tokens they are tokens whose text is held back, unless the server counts fewer; before the first they are none."""
    held = [text(""), text("a"), text(""), text("b"), text("", "length")]
    assert read(*held, usage(3), "[DONE]").times == [1.0, 2.0, 3.0]
    assert read(*held, "[DONE]").times == [1.0, 2.0, 3.0]
    assert read(*held, usage(2), "[DONE]").times == [1.0, 3.0]
    assert read(*held, usage(4), "[DONE]").times == [1.0, 2.0, 3.0, 4.0]  # one each: the last token came with the end
    assert read(*held, usage(50), "[DONE]").times == [1.0, 2.0, 3.0]  # many each
    assert read(text(""), text(""), text("", "length"), usage(2), "[DONE]").times == [1.0, 2.0]  # special tokens alone
    assert read(text(""), text("", "length"), "[DONE]").times == []
    assert read(chat(role="assistant", content=""), chat("stop"), usage(0), "[DONE]").times == []


def test_several_tokens_at_once():
    stream = read(text("abc"), text("de", "stop"), usage(5, prompt_tokens_details={"cached_tokens": 4}), "[DONE]")
    assert stream.times == [0.0, 1.0] and (stream.output, stream.counted, stream.cached) == (5, USAGE, 4)
    assert stream.verdict() == ("stop", "") and stream.done == 3.0


def test_without_usage_chunks_are_counted_and_said_to_be_chunks():
    stream = read(text("several tokens "), chat(reasoning_content="and more", content=" here"), text("", "length"), "[DONE]")
    assert (stream.output, stream.counted, stream.text) == (2, CHUNKS, "several tokens and more here") and stream.cached is None


@pytest.mark.parametrize("count", [None, True, -1, 2.5, "5", [], 0])
def test_a_usage_that_counts_nothing(count: Any):
    stream = read(text("a"), text("b", "stop"), usage(count, prompt_tokens_details={"cached_tokens": count or None}), "[DONE]")
    assert (stream.output, stream.counted, stream.cached, stream.verdict()) == (2, CHUNKS, None, ("stop", ""))


def test_a_usage_that_stands_before_later_words_is_not_of_them():
    """A server that sends usage with its first chunk alone, and one that breaks off after some."""
    assert read(text("a", usage={"completion_tokens": 0}), text("b", "stop"), "[DONE]").output == 2
    broken = read(text("a", usage={"completion_tokens": 1}), text("b"))
    assert (broken.output, broken.counted) == (2, CHUNKS)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ('{"choices": [{"te', "a malformed chunk: '{\"choices"),
        ("[" * 100_000, "a malformed chunk"),
        ("[1]", "no object"),
        ('{"choices": [7]}', "choices are [7]"),
        ('{"choices": {"0": 1}}', "choices are"),
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": "gone"}, "gone"),
        ({"error": {"error": {"message": "deep"}}}, "deep"),
        ({"error": {"code": 500}}, "{'code': 500}"),
        (Event("error", '{"detail": [{"msg": "no"}]}'), "[{'msg': 'no'}]"),
        (Event("error", "[DONE]"), "[DONE]"),
        ({"error": "two\nlines\x1b[2J and \ud83d half"}, "two lines?[2J and ? half"),
    ],
)
def test_what_may_go_wrong(event: Any, said: str):
    """Nothing comes of it after that, [DONE] included; what had come is kept, and the message is one line that can be written."""
    stream = read(text("a"), event, text("late"), "[DONE]")
    reason, error = stream.verdict()
    assert stream.broken and reason == FAILED and said in error and math.isnan(stream.done) and stream.times == [0.0]
    assert len(error) <= 240 and error.isprintable()
    error.encode()


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*sorted(chat()), "error", "type"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = ("text", "delta", "finish_reason", "content", "role", "tool_calls", "reasoning", "function", "completion_tokens")
PART = st.dictionaries(st.sampled_from(KEYS), ANY, max_size=3)
CHUNK = st.one_of(
    ANY,
    st.fixed_dictionaries({}, optional={"choices": ANY | st.lists(PART, max_size=2), "usage": ANY | PART, "object": ANY}),
    st.builds(lambda part, delta: {"choices": [{**part, "delta": delta}]}, PART, ANY | PART),
)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(CHUNK.map(json.dumps) | st.text(max_size=9) | st.just("[DONE]"), max_size=5),
    st.sampled_from(["message", "error", "x"]),
)
def test_whatever_comes_is_a_record(data: list[str], name: str):
    stream = read(*(Event(name, each) for each in data))
    stream.close(Event(name, "{"), "", 9.0)
    reason, error = stream.verdict()
    assert reason in (*ANSWERED, FAILED) and (reason != FAILED or error) and error.isprintable()
    assert stream.output >= 0 and stream.times == sorted(stream.times) and len(stream.times) <= len(data)
