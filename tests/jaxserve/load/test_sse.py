"""Server-sent events. Oracle: the rules of the HTML standard, 9.2.6, worked slowly on the whole text at once."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.load.sse import LIMIT, Event, Events
from tests.jaxserve.load.dialects import DIALECTS


def slow(body: bytes) -> list[Event]:
    """Line by line, with the standard's own two buffers; and llama.cpp's field `error`."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    found, data, kind = [], "", ""
    for line in re.split("\r\n|\n|\r", text)[:-1]:
        if line == "":
            if data != "":
                found.append(Event(kind or "message", data.removesuffix("\n")))
            data, kind = "", ""
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if field in ("data", "error"):
                data += value + "\n"
            if field in ("event", "error"):
                kind = value if field == "event" else "error"
    return found


def read(*parts: bytes) -> list[Event]:
    events = Events()
    return [event for part in parts for event in events.feed(part)]


@pytest.mark.parametrize("name", DIALECTS)
def test_cut_at_every_byte(name: str):
    """Each event has come with the byte that ends it, wherever the reads were cut: also within a character, and between CR and LF."""
    wire = DIALECTS[name].wire
    for cut in range(len(wire) + 1):
        assert read(wire[:cut]) == slow(wire[:cut])
        assert read(wire[:cut], wire[cut:]) == slow(wire)
    assert read(*(wire[i : i + 1] for i in range(len(wire)))) == slow(wire)


LINES = st.one_of(
    st.sampled_from(
        ["", "data", "data:", "data: ", "data:  two", "event: e", "event", "id: 1", "id: \0", "retry: 5", ": c", ":", "x: y"]
    ),
    st.text(max_size=8).map("data: ".__add__),
    st.text(max_size=5),
)
BODIES = st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r", "\r\n"])), max_size=12).map(
    lambda lines: "".join(line + end for line, end in lines).encode("utf-8", "replace")
)


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(BODIES, BODIES.map(b"\xef\xbb\xbf".__add__), st.binary(max_size=40)), st.lists(st.integers(0, 200), max_size=6)
)
def test_any_stream_cut_anywhere(body: bytes, cuts: list[int]):
    ends = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    parts = [body[a:b] for a, b in itertools.pairwise(ends)]
    assert read(*parts) == slow(body)
    assert read(*(body[i : i + 1] for i in range(len(body)))) == slow(body)


def test_of_the_standard_itself():
    """Its own examples: a comment and three events; two events of which the last block is none; one space is dropped, two are not."""
    assert read(b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n") == [
        Event("message", "first event"),
        Event("message", "second event"),
    ]
    assert read(b"data\n\ndata\ndata\n\ndata:") == [Event("message", ""), Event("message", "\n")]
    assert read(b"data:test\n\ndata: test\n\n") == [Event("message", "test")] * 2
    assert read(b"data: YHOO\ndata: +2\ndata: 10\n\n") == [Event("message", "YHOO\n+2\n10")]


def test_a_line_end_of_two_letters_that_comes_in_two_reads():
    """It is one line end and no empty line, which would end the event in its middle."""
    assert read(b"event: error\r", b"\ndata: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [Event("error", "a\nb")]


def test_a_cr_ends_its_event_at_once():
    """Else the time of a token would be that of the next one."""
    events = Events()
    assert events.feed(b"data: a\r\n\r") == [Event("message", "a")]
    assert events.feed(b"\n") == [] and events.feed(b"\ndata: b\n\n") == [Event("message", "b")]


def test_what_is_open_at_the_end():
    for wire in (b"data: a\ndata: b\n", b"data: a\ndata: b", b"data: a\ndata: b\r"):
        events = Events()
        assert events.feed(wire) == [] and events.rest() == Event("message", "a\nb") and events.rest() is None
    events = Events()
    assert events.feed(b"data: a\n\nevent: x\n") == [Event("message", "a")] and events.rest() is None


def test_an_event_without_end():
    """Neither a line nor an event may fill the memory; comments may go on for ever."""
    block = b"x" * 2**20
    with pytest.raises(ValueError, match="an event of more than 16 MiB"):
        read(b"data: ", *([block] * (LIMIT // len(block) + 1)))
    with pytest.raises(ValueError, match="an event of more than 16 MiB"):
        read(*([b"data: " + block + b"\n"] * (LIMIT // len(block) + 1)))
    assert read(*([b": " + block + b"\n"] * (LIMIT // len(block) + 1)), b"data: a\n\n") == [Event("message", "a")]
