"""A load over HTTP. Oracle: a server of our own that knows what it was asked and how it failed."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from jaxserve.load.client import Item
from jaxserve.load.parts import split
from jaxserve.load.run import INTERRUPTED, Played, play
from jaxserve.load.schedule import Closed, Open
from models.errors import UserError
from tests.jaxserve.load.fake_server import FakeServer, serving

pytest.importorskip("httpx2", reason="needs the extra http")

from jaxserve.load.http_client import HttpClient


def items(n: int, output: int = 4) -> Iterator[Item]:
    return iter([Item(i, (i, 2, 3), output) for i in range(n)])


def go(server: FakeServer, schedule, n: int, output: int = 4, **options) -> Played:
    with HttpClient(server.url, **options) as client:
        return play(client, schedule, items(n, output))


def test_what_is_asked_and_what_comes():
    with serving(token=0.002) as server:
        records, why = go(server, Open(iter([0.0, 0.01, 0.02])), 3)
    assert not why and [body["prompt"] for body in server.asked] == [[i, 2, 3] for i in range(3)]
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
        ("html", "failed", "text/event-stream", 0),
    ],
)
def test_faults(fault: str, reason: str, said: str, tokens: int):
    """One request of three goes wrong; the others are none the worse, and what came of it is kept."""
    with serving(lambda number: fault if number == 1 else "") as server:
        records, why = go(server, Closed(1), 3)
    one = next(record for record in records if record.id == 1)
    assert not why and (one.reason, len(one.tokens)) == (reason, tokens) and said in one.error
    assert [record.reason for record in records if record.id != 1] == ["length"] * 2


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
    assert [record.reason for record in records] == ["failed"] * 3 and all("broke off" in each.error for each in records)


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
            assert why == INTERRUPTED and {record.reason for record in records} == {"length", "unfinished"}
            unfinished = sum(record.reason == "unfinished" for record in records)
            assert unfinished in (1, 2) and client.idle  # one client may just have had its answer


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
    ],
)
def test_nobody_there(url: Callable[[], str], said: str):
    with pytest.raises(UserError, match=said):
        HttpClient(url())
