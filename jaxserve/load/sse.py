"""Server-sent events out of the bytes of an answer, as the HTML standard reads them (section 9.2.6, "Interpreting an event stream").

Of the four fields `id` and `retry` are for clients that connect again, which a request for an answer doesn't: they are passed over.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MESSAGE, ERROR = "message", "error"  # the name of an event that gives none, and of one that tells of a failure
LIMIT = 16 * 2**20  # bytes of one event
_END_OF_LINE = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """name: `MESSAGE` where none was given. data: its lines, joined by newlines."""

    name: str
    data: str


class Events:
    """Takes bytes as they come, cut anywhere, and gives each event as soon as the line that ends it has come.

    An event without a data field is none. Lines end with CR, LF or both, and a CR ends its line at once: an event isn't held back until
    it is known whether an LF follows. There is one field more than the standard has: llama.cpp's server told of failures in lines such as
    `error: {"message": ...}`, which are events with the name `ERROR` here.

    Attributes:
      unread: the first line that is no field of events, for a message about a stream that is none; "" before.
    """

    def __init__(self) -> None:
        self.unread = ""
        self._open = bytearray()  # of a line that has not ended
        self._after_cr = False  # an LF now belongs to the line before
        self._first = True  # no line has ended; a byte order mark may stand before the first
        self._name, self._data, self._size = "", list[str](), 0

    def feed(self, data: bytes) -> list[Event]:
        """The events that end within these bytes.

        Raises:
          ValueError: an event is longer than `LIMIT`.
        """
        if not data:
            return []
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        *lines, rest = _END_OF_LINE.split(data)
        events = []
        for line in lines:
            event = self._end(bytes(self._open) + line if self._open else line)
            self._open.clear()
            if event is not None:
                events.append(event)
        self._open += rest
        self._check(len(self._open))
        return events

    def rest(self) -> Event | None:
        """The event that is open where the stream ends, as if a blank line came. The standard drops it; see `Stream.close`."""
        if self._open:
            self._end(bytes(self._open))
            self._open.clear()
        return self._end(b"")

    def _end(self, line: bytes) -> Event | None:
        """A line has ended. An empty one ends an event."""
        if self._first:
            line, self._first = line.removeprefix(_BOM), False
        if line:
            self._field(line.decode("utf-8", "replace"))
            return None
        event = Event(self._name or MESSAGE, "\n".join(self._data)) if self._data else None
        self._name, self._data, self._size = "", [], 0
        return event

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._add(value)
            case "event":
                self._name = value
            case "error":
                self._name = ERROR
                self._add(value)
            case "" | "id" | "retry":  # "" is a comment, such as servers send to keep a connection open
                pass
            case _:
                self.unread = self.unread or line

    def _add(self, value: str) -> None:
        self._data.append(value)
        self._size += len(value) + 1
        self._check(0)

    def _check(self, more: int) -> None:
        if self._size + more > LIMIT:
            raise ValueError(f"an event of more than {LIMIT // 2**20} MiB")
