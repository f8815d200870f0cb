"""Streams as servers write them: what is on the wire, and what a reader must make of it, worked out by hand.

Written from the servers' documentation and from public reports, in our own words; no recording.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Dialect(NamedTuple):
    """Attributes:
    wire: the body of the answer.
    tokens: which events, from 0 and counted as the HTML standard does, bring tokens.
    output, reason, said: of the record; `said` is in its error.
    """

    wire: bytes
    tokens: tuple[int, ...]
    output: int
    reason: str
    said: str = ""


def events(*data: Any, end: str = "\n", prefix: str = "data: ") -> bytes:
    lines = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in data]
    return "".join(f"{prefix}{line}{end}{end}" for line in lines).encode()


def text(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}


def chat(finish: str | None = None, usage: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": usage}


def usage(tokens: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens, **more}}


CALL = {"index": 0, "id": "t", "type": "function", "function": {"name": "look", "arguments": ""}}
MORE = {"index": 0, "function": {"arguments": '{"at": "Zürich"}'}}
FILTERS = {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}
ANNOTATION = {
    "id": "",
    "choices": [{"index": 0, "finish_reason": None, "content_filter_results": {"hate": {"filtered": False}}}],
}

DIALECTS = {
    "OpenAI's completions": Dialect(
        events(text("Grüezi "), text("😀"), text("", "length"), usage(2), "[DONE]"), (0, 1), 2, "length"
    ),
    "OpenAI's chat: a role, then tokens, then the end": Dialect(
        events(chat(role="assistant", content=""), chat(content="a"), chat(content="b"), chat("stop"), usage(2), "[DONE]"),
        (1, 2),
        2,
        "stop",
    ),
    "vLLM: the last token comes with the end, usage is null before": Dialect(
        events(text("a", usage=None), text("b", usage=None), text("c", "length", usage=None), usage(3), "[DONE]"),
        (0, 1, 2),
        3,
        "length",
    ),
    "vLLM: special tokens have no text, the last one neither": Dialect(
        events(text("a"), text(""), text("", "length"), usage(3), "[DONE]"), (0, 1, 2), 3, "length"
    ),
    "vLLM: usage with every chunk": Dialect(
        events(*(text(c, usage={"completion_tokens": i + 1}) for i, c in enumerate("abc")), text("", "stop"), "[DONE]"),
        (0, 1, 2),
        3,
        "stop",
    ),
    "vLLM: an error after two tokens, and done all the same": Dialect(
        events(text("a"), text("b"), {"error": {"message": "engine died", "code": 500}}, "[DONE]"),
        (0, 1),
        2,
        "failed",
        "engine died",
    ),
    "vLLM before its errors were nested": Dialect(
        events({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "[DONE]"),
        (),
        0,
        "failed",
        "too long",
    ),
    "SGLang with an interval: many tokens a chunk": Dialect(
        events(text(""), text("ten tokens"), text("ten more", "length"), usage(20), "[DONE]"), (1, 2), 20, "length"
    ),
    "SGLang: aborted": Dialect(
        events(text("a"), text("", "abort"), usage(1), "[DONE]"), (0,), 1, "failed", "the server ended it: abort"
    ),
    "llama.cpp's server: the last chunk has no text": Dialect(
        events(text("a"), text("b"), {**text("", "length"), "timings": {"predicted_n": 2}}, usage(2), "[DONE]"),
        (0, 1),
        2,
        "length",
    ),
    "llama.cpp's server: an error line": Dialect(
        events(text("a")) + events({"code": 400, "message": "the context is full"}, prefix="error: "),
        (0,),
        1,
        "failed",
        "context is full",
    ),
    "Ollama": Dialect(
        events(
            *(chat(role="assistant", content=c) for c in "ab"), chat("stop", role="assistant", content=""), usage(2), "[DONE]"
        ),
        (0, 1),
        2,
        "stop",
    ),
    "TGI: no space after the colon, ends of its own": Dialect(
        events(text("a"), text("b", "eos_token", usage={"completion_tokens": 2}), "[DONE]", prefix="data:"), (0, 1), 2, "stop"
    ),
    "TGI: an error": Dialect(
        events({"error": "overloaded", "error_type": "overloaded"}, prefix="data:"), (), 0, "failed", "overloaded"
    ),
    "Azure: filters first, annotations between": Dialect(
        events(
            FILTERS, chat(role="assistant"), chat(content="a"), ANNOTATION, chat(content="b"), chat("stop"), usage(2), "[DONE]"
        ),
        (2, 4),
        2,
        "stop",
    ),
    "Azure: stopped by its filter": Dialect(
        events(text("a"), text("", "content_filter"), "[DONE]"), (0,), 1, "failed", "the server ended it: content_filter"
    ),
    "OpenRouter: comments, CRLF": Dialect(
        b": OPENROUTER PROCESSING\r\n\r\n: OPENROUTER PROCESSING\r\n\r\n"
        + events(chat(role="assistant", content="a"), chat("length", content=""), usage(1), "[DONE]", end="\r\n"),
        (0,),
        1,
        "length",
    ),
    "OpenRouter: an error within the stream": Dialect(
        events(chat(content="a"), {**chat("error", content=""), "error": {"code": 502, "message": "provider\nlost"}}),
        (0,),
        1,
        "failed",
        "provider lost",
    ),
    "DeepSeek: thoughts are tokens": Dialect(
        events(
            chat(role="assistant", content=None, reasoning_content=""),
            chat(reasoning_content="hm", content=None),
            chat(content="a"),
        )
        + events(chat("stop", content=""), usage(2), "[DONE]"),
        (1, 2),
        2,
        "stop",
    ),
    "calls of tools are tokens": Dialect(
        events(
            chat(role="assistant", content=None), chat(tool_calls=[CALL]), chat(tool_calls=[MORE]), chat("tool_calls"), usage(9)
        )
        + events("[DONE]"),
        (1, 2),
        9,
        "stop",
    ),
    "Mistral: contents in parts": Dialect(
        events(
            chat(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
            chat("stop", content="a"),
            "[DONE]",
        ),
        (0, 1),
        2,
        "stop",
    ),
    "named errors": Dialect(
        events(text("a")) + b'event: error\ndata: {"message": "out of memory"}\n\ndata: [DONE]\n\n',
        (0,),
        1,
        "failed",
        "out of memory",
    ),
    "a named error of plain text": Dialect(b"event: error\ndata: out of\ndata: memory\n\n", (), 0, "failed", "out of memory"),
    "a named error of nothing": Dialect(b"event: error\ndata:\n\n", (), 0, "failed", "(nothing said)"),
    "Anthropic's error": Dialect(
        events({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), (), 0, "failed", "Overloaded"
    ),
    "error: null is none": Dialect(events(text("a", error=None), text("b", "stop", error={}), "[DONE]"), (0, 1), 2, "stop"),
    "events without data, pings, empty data": Dialect(
        b"\xef\xbb\xbfretry: 3000\n\nid: 1\n\nevent: ping\n\ndata:\n\ndata\n\n: keep-alive\n\n"
        b"event: ping\ndata: {}\n\nevent: ping\ndata: x\n\n"
        + b"id: 7\nevent: message\nretry: soon\n"
        + events(text("a"), text("b", "length"), usage(2), "[DONE]"),
        (4, 5),
        2,
        "length",
    ),
    "several lines of data, old Macs' line ends": Dialect(
        b'data: {"choices": [{"text": "a",\rdata:  "finish_reason": "stop"}]}\r\rdata: [DONE]\r\r', (0,), 1, "stop"
    ),
    "done in other words": Dialect(events(text("a", "stop"), '"[DONE]"'), (0,), 1, "stop"),
    "done in small letters, then a chatter": Dialect(events(text("a", "stop"), "[done]", text("late"), "{"), (0,), 1, "stop"),
    "no blank line after the last event": Dialect(events(text("a"), text("b", "stop"), "[DONE]")[:-2], (0, 1), 2, "stop"),
    "no line end after the last event": Dialect(
        events(text("a"), text("b", "stop"))[:-2], (0, 1), 2, "stop", "[DONE] is missing"
    ),
    "ends while nothing says so": Dialect(events(text("a"), text("b")), (0, 1), 2, "failed", "ended before the answer did"),
    "half a last event": Dialect(events(text("a"), text("b"))[:-9], (0,), 1, "failed", "ended before the answer did"),
    "lines of JSON and no events": Dialect(
        b'{"response": "a"}\n{"response": "b"}\n', (), 0, "failed", "no stream of events came, but"
    ),
    "a page": Dialect(b"<html><body>busy</body></html>", (), 0, "failed", "no stream of events came, but '<html>"),
    "nothing": Dialect(b"", (), 0, "failed", "ended before the answer did"),
}
