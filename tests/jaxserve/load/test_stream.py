"""Streamed completions. Oracle: events as OpenAI's API and vLLM write them, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jaxserve.load.stream import Stream


def text(text: str, finish: str | None = None, **more: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more})


def usage(tokens: int, cached: int | None = None) -> str:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens, **details}})


def read(*events: str) -> Stream:
    stream = Stream()
    for i, event in enumerate(events):
        if not stream.broken:
            stream.add(event, float(i))
    return stream


def test_a_whole_answer():
    """Three tokens, the second of which is held back as text; the last chunk has no token, the one after it counts them."""
    stream = read(text("a"), text(""), text("c"), text("", "length"), usage(3, 5), "[DONE]")
    assert stream.times == [0.0, 1.0, 2.0] and stream.output == 3 and stream.cached == 5 and stream.done == 5.0
    assert stream.verdict() == ("length", "")


def test_several_tokens_at_once():
    stream = read(text("abc"), text("de", "stop"), usage(5), "[DONE]")
    assert stream.times == [0.0, 1.0] and stream.output == 5 and stream.cached is None and stream.verdict()[0] == "stop"


def test_without_usage_chunks_are_counted():
    assert read(text("a"), text("b", "length"), "[DONE]").output == 2


def test_usage_null_as_vllm_sends_it():
    assert read(text("a", usage=None), text("b", "length", usage=None), usage(2), "[DONE]").verdict() == ("length", "")


@pytest.mark.parametrize(
    ("events", "reason", "said"),
    [
        ((text("a"), text("", "length")), "length", "[DONE] is missing"),
        ((text("a"), "[DONE]"), "stop", "named no reason"),
        ((text("a"),), "failed", "the stream ended before the answer did"),
        ((), "failed", "the stream ended before the answer did"),
        ((text("a"), '{"choices": [{"te'), "failed", "malformed chunk"),
        ((text("a"), "[1]"), "failed", "no object"),
        ((text("a"), '{"choices": [7]}'), "failed", "choices are"),
        ((text("a"), '{"error": {"message": "out of memory", "code": 500}}'), "failed", "out of memory"),
        ((text("a"), '{"error": "gone"}'), "failed", "gone"),
        ((text("a"), text("", "abort"), "[DONE]"), "failed", "abort"),
    ],
)
def test_what_may_go_wrong(events: tuple[str, ...], reason: str, said: str):
    stream = read(*events)
    assert stream.verdict()[0] == reason and said in stream.verdict()[1]
    assert len(stream.times) == min(len(events), 1)  # what came is kept


def test_nothing_after_an_error():
    stream = read("{", text("late"))
    assert stream.broken and stream.times == []
