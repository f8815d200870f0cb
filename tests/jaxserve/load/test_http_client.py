"""A load over HTTP. Oracle: a server of our own that knows what it was asked and how it failed."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from costmodel.endings import SIGNALS, heard, named
from jaxserve.load.client import Item
from jaxserve.load.measure import Played, Server, measure, play
from jaxserve.load.parts import split
from jaxserve.load.schedule import Closed, Open
from jaxserve.load.source import Alphabet
from jaxserve.load.spec import LoadSpec
from jaxserve.load.stream import Stream
from models.errors import UserError
from tests.jaxserve.load.dialects import DIALECTS, events, text
from tests.jaxserve.load.fake_server import FakeServer, serving
from tests.test_layers import ROOT

pytest.importorskip("httpx2", reason="needs the extra http")

from jaxserve.load import http_client
from jaxserve.load.http_client import HttpClient


def items(n: int, output: int = 4) -> Iterator[Item]:
    return iter([Item(i, (i, 2, 3), output) for i in range(n)])


def go(server: FakeServer, schedule, n: int, output: int = 4, **options) -> Played:
    with HttpClient(server.url, **options) as client:
        return play(client, schedule, items(n, output))


def test_what_is_asked_and_what_comes():
    with serving(token=0.002) as server:
        records, why = go(server, Open(iter([0.0, 0.01, 0.02])), 3)
    assert not why and sorted(body["prompt"] for body in server.asked) == [[i, 2, 3] for i in range(3)]
    assert all(body["max_tokens"] == 4 and body["stream"] and body["ignore_eos"] for body in server.asked)
    assert {body["model"] for body in server.asked} == {"fake"} and server.asked[0]["stream_options"] == {"include_usage": True}
    for one in records:
        assert (one.reason, one.error, one.output, one.prompt, len(one.tokens)) == ("length", "", 4, 3, 4)
        assert (
            one.intended <= one.sent <= one.tokens[0] and list(one.tokens) == sorted(one.tokens) and one.tokens[-1] <= one.end
        )
        assert one.tokens[-1] - one.sent >= 4 * 0.002 and math.isnan(one.started)  # no sooner than they were written
        assert [part.name for part in split(one)] == [
            "client delay",
            "preprocessing + aggregation + queue + prefill + emission",
        ]


def test_no_request_waits_for_another():
    """Twenty at once at a server that answers none of them before it has all of them."""
    with serving(together=20) as server:
        records, _ = go(server, Open(iter([0.0] * 20)), 20)
    assert server.most == 20 and all(record.answered for record in records)


def test_connections_are_used_again():
    with serving() as server:
        go(server, Closed(2), 20)
    assert server.connections <= 3  # one of them asked for the models


def test_a_connection_that_was_idle_is_not_used_again(monkeypatch: pytest.MonkeyPatch):
    """The server may be closing it at that moment, and the request would be lost."""
    monkeypatch.setattr(http_client, "IDLE", 0.05)
    with serving() as server:
        go(server, Open(iter([0.0, 0.4])), 2)
    assert server.connections >= 2  # without a limit it is the one that asked for the models


def test_closed_loop():
    with serving(together=3) as server:
        records, _ = go(server, Closed(3), 12, 3)
    assert server.most == 3 and len(records) == 12
    ends = sorted(record.end for record in records)
    assert [record.intended for record in sorted(records, key=lambda r: r.intended)][3:] == pytest.approx(ends[:9])


@pytest.mark.parametrize(
    ("fault", "reason", "said", "tokens"),
    [
        ("429", "refused", "HTTP 429: too much to do", 0),
        ("503", "refused", "HTTP 503: too much to do", 0),
        ("400", "failed", "HTTP 400: too much to do", 0),
        ("dies", "failed", "the answer broke off", 2),
        ("stops", "failed", "the stream ended before the answer did", 2),
        ("malformed", "failed", "malformed chunk", 2),
        ("no done", "length", "[DONE] is missing", 4),
        ("html", "failed", "the answer is application/json, not the text/event-stream that was asked for: {}", 0),
    ],
)
def test_faults(fault: str, reason: str, said: str, tokens: int):
    """One request of three goes wrong; the others are none the worse, and what came of it is kept."""
    with serving(lambda number: fault if number == 1 else "") as server:
        records, why = go(server, Closed(1), 3)
    one = next(record for record in records if record.id == 1)
    assert not why and (one.reason, len(one.tokens)) == (reason, tokens) and said in one.error
    assert [record.reason for record in records if record.id != 1] == ["length"] * 2


def answer(
    body: bytes, kind: str = "text/event-stream", code: str = "200 OK", more: Sequence[str] = (), length: int | None = None
) -> bytes:
    """As it is on the wire. length: what is said of the body's; None for what it has."""
    lines = [
        f"HTTP/1.1 {code}",
        "Connection: close",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body) if length is None else length}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*parts: bytes, last: bytes = b"0\r\n\r\n") -> bytes:
    """A body in chunks of HTTP's own."""
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + last


WHOLE = DIALECTS["OpenAI's completions"].wire
NESTED = b"[" * 50_000


@pytest.mark.parametrize(
    ("wire", "reason", "said", "tokens"),
    [
        # What is well said in some other way.
        (answer(WHOLE), "length", "", 2),
        (answer(gzip.compress(WHOLE), more=["Content-Encoding: gzip"]), "length", "", 2),
        (answer(WHOLE, kind="Text/Event-Stream ; charset=utf-8"), "length", "", 2),
        (answer(WHOLE).replace(b"Content-Type: text/event-stream\r\n", b""), "length", "", 2),
        (chunked(*(WHOLE[i : i + 1] for i in range(len(WHOLE)))), "length", "", 2),
        (chunked(WHOLE[:-2]), "length", "", 2),
        # The connection or the body is cut.
        (answer(WHOLE, length=len(WHOLE) + 9), "length", "", 2),  # after [DONE]
        (answer(WHOLE[:-60], length=len(WHOLE)), "failed", "the answer broke off", 2),
        (chunked(WHOLE[:130], last=b"ff\r\nda"), "failed", "the answer broke off", 1),
        (chunked(WHOLE[:130], last=b"zz\r\n"), "failed", "the answer broke off", 1),
        (chunked(WHOLE[:130]), "failed", "the stream ended before the answer did", 1),
        (b"", "failed", "the answer broke off", 0),
        (b"HTTP/1.1 200 O", "failed", "the answer broke off", 0),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "failed", "the answer broke off", 0),
        (answer(b"\x1f\x8bno gzip", more=["Content-Encoding: gzip"]), "failed", "the answer broke off", 0),
        # No stream.
        (
            answer(b'{"choices": [{"text": "all at once"}]}', "application/json"),
            "failed",
            "the answer is application/json, not",
            0,
        ),
        (
            answer(b'{"error": {"message": "no streams"}}', "application/json"),
            "failed",
            "not the text/event-stream that was asked for: no str",
            0,
        ),
        (
            answer(b"<html>\n<b>busy</b></html>", "text/html"),
            "failed",
            "the answer is text/html, not the text/event-stream that was",
            0,
        ),
        (answer(NESTED, "application/json"), "failed", "application/json", 0),
        (answer(b"\xff\xfe\x00", "application/octet-stream"), "failed", "application/octet-stream", 0),
        (answer(b"<html>busy</html>"), "failed", "no stream of events came, but '<html>busy</html>'", 0),
        (answer(b""), "failed", "the stream ended before the answer did", 0),
        # HTTP errors, however they say it.
        (answer(b"upstream\nis away", "text/plain", "502 Bad Gateway"), "failed", "HTTP 502: upstream is away", 0),
        (answer(b"", "text/plain", "500 Oh"), "failed", "HTTP 500: (nothing said)", 0),
        (answer(NESTED, "application/json", "500 Oh"), "failed", "HTTP 500: [[[", 0),
        (
            answer(b"\x1f\x8bno gzip", "text/plain", "500 Oh", ["Content-Encoding: gzip"]),
            "failed",
            "HTTP 500: (nothing said)",
            0,
        ),
        (
            answer(b'{"detail": [{"msg": "no prompt"}]}', "application/json", "422 No"),
            "failed",
            "HTTP 422: [{'msg': 'no prompt'}]",
            0,
        ),
        (answer(b'{"message": null, "error": "full"}', "application/json", "429 No"), "refused", "HTTP 429: full", 0),
        (answer(b"x" * 300_000, "text/plain", "503 No", length=2**40), "refused", "HTTP 503: xxxx", 0),
        (
            answer(b"", "text/plain", "307 No", ["Location: https://there/v1"]),
            "failed",
            "HTTP 307: it is at https://there/v1; give that",
            0,
        ),
        (answer(b"", "text/plain", "204 No Content"), "failed", "HTTP 204: (nothing said)", 0),
    ],
)
def test_whatever_comes_over_the_wire_is_one_record(wire: bytes, reason: str, said: str, tokens: int):
    """The request before it and the one after are none the worse."""
    with serving(lambda number: wire if number == 1 else "") as server:
        records, why = go(server, Closed(1), 3)
    assert not why and [record.reason for record in records] == ["length", reason, "length"]
    assert (said in records[1].error if said else not records[1].error) and len(records[1].tokens) == tokens
    assert len(records[1].error) < 300 and records[1].error.isprintable()


def test_a_stream_that_stays_open_after_its_end(monkeypatch: pytest.MonkeyPatch):
    """The answer ended with [DONE]; its client is not held up, however long the server goes on with keep-alives."""
    monkeypatch.setattr(http_client, "PATIENCE", 0.05)
    held = threading.Event()

    def open(number: int) -> str | bytes:
        if number == 0:
            return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99999\r\n\r\n" + WHOLE
        return ""

    with serving(open, hold=held) as server:
        records, why = go(server, Closed(1), 2)
        held.set()
    assert not why and [(record.reason, len(record.tokens)) for record in records] == [("length", 2), ("length", 4)]


@contextlib.contextmanager
def elsewhere() -> Iterator[str]:
    """The URL of a fake server in another process, which ends when its standard input does."""
    body = "import sys; from tests.jaxserve.load.fake_server import serving\n"
    body += "with serving(together=1) as server: print(server.url, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        assert child.stdin and child.stdout
        try:
            yield child.stdout.readline().strip()
        finally:
            child.stdin.close()


def test_no_files_are_left_here():
    """A limit of the client's machine is no sign that the server is gone: those requests fail, with that reason, and the run goes on.

    The server is a process of its own: here it would find no files to take connections in.
    """
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with elsewhere() as url, HttpClient(url) as client:
        taken = [os.open(os.devnull, os.O_RDONLY)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 100, limits[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(taken[0]))
            for _ in range(12):
                os.close(taken.pop())
            records, why = play(client, Open(iter([0.0] * 40)), items(40))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for each in taken:
                os.close(each)
    failed = [record.error for record in records if not record.answered]
    assert not why and len(records) == 40 and 0 < len(failed) < 40
    assert any(
        "Too many open files, a limit of this machine and not of the server; raise it (ulimit -n)" in each for each in failed
    )


def test_a_tokenizer_counts_what_the_server_does_not():
    """Two chunks of several words each, without usage: the tokens of the text, one a word here."""
    wire = answer(events(text("one two "), text("three", "length"), "[DONE]"))
    asked = LoadSpec(clients=(1,), prompt="3", output="3", requests=2)
    with serving(lambda number: wire) as server:
        for count, found in ((None, (2, "chunks")), (lambda words: len(words.split()), (3, "tokenizer"))):
            with HttpClient(server.url, count=count) as client:
                run = measure(Server(client, lambda key: Alphabet(100, key)), asked, asked.loads[0])
            assert [(r.output, r.counted, len(r.tokens)) for r in run.records] == [(*found, 2)] * 2
            summary = run.summary.to_json()
            assert summary["tokens_counted_by"] == {found[1]: 2} and summary["output_tokens"] == 2 * found[0]


def test_a_server_that_hangs():
    with serving(lambda number: "hangs" if not number else "") as server:
        records, why = go(server, Closed(1), 2, timeout=1.0)
    assert not why and [record.reason for record in records] == ["failed", "length"] and "timeout" in records[0].error


def test_a_server_that_dies_mid_run():
    """After the fifth request nobody listens any more: the run ends then, with what there is."""
    with serving(lambda number: "dies" if number == 5 else "") as server:

        class Dying(Closed):
            def ended(self, at: float) -> None:
                super().ended(at)
                if len(server.asked) == 6:
                    server.stop()

        records, why = go(server, Dying(1), 50)
    assert why.startswith(f"the server at {server.url} is gone")
    assert [record.reason for record in records] == ["length"] * 5 + ["failed"] * 2 + ["unfinished"]
    assert "broke off" in records[5].error and "no connection" in records[6].error  # and the client would have gone on


def test_a_server_that_dies_with_the_last_request():
    """All requests are under way when it dies, so none that comes later finds nobody there: the run is not complete all the same."""

    def last(number: int) -> str:
        if number == 2:
            threading.Timer(0.1, server.stop).start()  # every answer takes 10 s
        return ""

    with serving(last, token=0.02, together=3) as server:
        records, why = go(server, Closed(3), 3, output=500)
    assert why.startswith(f"the server at {server.url} is gone")
    failed = [record for record in records if record.reason == "failed"]  # the others were let go once that was known
    assert failed and all("broke off" in record.error for record in failed)
    assert {record.reason for record in records} <= {"failed", "unfinished"} and len(records) == 3


def test_ctrl_c():
    """Twice in a row with one client: what was done is kept, what was under way is unfinished, and the client can go on."""

    def hit(number: int) -> str:
        if number % 10 == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return "hangs" if number % 10 >= 7 else ""

    with serving(hit) as server, HttpClient(server.url) as client:
        for _ in range(2):
            server.asked.clear()
            records, why = play(client, Closed(2), items(1000))
            assert why == "interrupted by Ctrl-C" and {record.reason for record in records} == {"length", "unfinished"}
            unfinished = sum(record.reason == "unfinished" for record in records)
            assert unfinished in (1, 2) and client.idle  # one client may just have had its answer


@pytest.mark.parametrize("sent", SIGNALS)
def test_a_signal_within_the_reading_of_a_chunk(sent: int, monkeypatch: pytest.MonkeyPatch):
    """There it would end the request's task, and with it all that was measured. Every request that was sent has its record."""
    read, count = Stream.add, itertools.count()

    def struck(stream: Stream, *event: Any) -> None:
        if next(count) == 33:
            signal.raise_signal(sent)
        read(stream, *event)

    monkeypatch.setattr(Stream, "add", struck)
    with serving() as server, heard(), HttpClient(server.url) as client:
        records, why = play(client, Closed(3), items(1000))
    assert why == f"interrupted by {named(sent)}" and {record.reason for record in records} == {"length", "unfinished"}
    assert sorted(record.id for record in records) == list(range(len(records))) and len(server.asked) <= len(records)


@pytest.mark.parametrize("sent", SIGNALS)
def test_a_signal_while_nothing_comes(sent: int):
    """The client waits for an answer that is given only when the run is over."""
    over = threading.Event()

    def silent(number: int) -> str:
        os.kill(os.getpid(), sent)
        over.wait(20)
        return ""

    with serving(silent) as server, heard(), HttpClient(server.url) as client:
        records, why = play(client, Closed(1), items(1))
        over.set()
    assert why == f"interrupted by {named(sent)}" and [record.reason for record in records] == ["unfinished"]


def test_a_cache_that_the_server_tells_of():
    with serving(cached=True) as server, HttpClient(server.url) as client:
        first, _ = play(client, Closed(1), items(3))
        assert client.known().caches and [record.cached for record in first] == [0, 0, 0]
        second, _ = play(client, Closed(1), items(3))
        assert [record.cached for record in second] == [2, 2, 2]
    with serving() as server, HttpClient(server.url) as client:
        play(client, Closed(1), items(1))
        assert not client.known().caches


def unheard() -> str:
    server = FakeServer()
    server.stop()
    return server.url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (unheard, "no server answers at http://127.0.0.1"),
        (lambda: "localhost:1", "is no URL"),
        (lambda: "ftp://localhost", "is no URL"),
        (lambda: "http://localhost:99999", r"no server answers at http://localhost:99999 \(.*port"),
    ],
)
def test_nobody_there(url: Callable[[], str], said: str):
    with pytest.raises(UserError, match=said):
        HttpClient(url())


@pytest.mark.parametrize(
    ("wire", "told"),
    [
        (answer(b"<html>404</html>", "text/html", "404 Not Found"), r"\(HTTP 404: <html>404</html>\); name one with --model"),
        (answer(b'{"error": {"message": "no key"}}', "application/json", "401 No"), r"\(HTTP 401: no key\); name one with"),
        (answer(NESTED), r"\(HTTP 200: \[\["),
        (answer(b'{"data": []}'), r"\(HTTP 200: \{'data'"),
        (answer(b"\x1f\x8bno gzip", more=["Content-Encoding: gzip"]), r"\(HTTP 200: \(nothing said\)\)"),
    ],
)
def test_a_server_that_lists_no_models(wire: bytes, told: str):
    """It is asked for one that the user names, whatever it says of its list."""
    with serving(models=wire) as server:
        with pytest.raises(UserError, match=f"the server at {server.url} doesn't list its models {told}"):
            HttpClient(server.url)
        with HttpClient(server.url, "mine") as client:
            records, _ = play(client, Closed(1), items(1))
    assert records[0].answered and server.asked[0]["model"] == "mine"


def test_a_server_that_accepts_and_says_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_client, "FIRST", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(UserError, match=r"ReadTimeout.*; start it, or mend --url"),
    ):
        HttpClient(f"http://127.0.0.1:{mute.getsockname()[1]}")
