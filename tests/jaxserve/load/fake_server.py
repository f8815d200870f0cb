"""A tiny server with OpenAI's API, in a thread of this process, that can be told to fail."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeServer:
    """Answers /v1/models and streams /v1/completions.

    Attributes:
      fault: told the number of a request, from 0: "" or what is to go wrong with it; or the whole answer, status line and all, after which
        the connection is closed.
      token: s between two tokens; first: s before the first.
      asked: bodies of all requests, in order.
      connections: that were made; most: requests that were under way at once.
      keys: what requests said under Authorization.
      hold: a connection on which a whole answer was sent stays open until it is set.
      models: the whole answer to who asks for the list of models, status line and all; empty for one of a model "fake".
      company: so many requests must be there before any of them is answered.
      cache: prompts that were seen, if the server has a prefix cache; whole prompts alone.
    """

    def __init__(
        self,
        fault: Callable[[int], str | bytes] = lambda number: "",
        *,
        token: float = 0.001,
        first: float = 0.0,
        cached: bool = False,
        together: int = 1,
        hold: threading.Event | None = None,
        models: bytes = b"",
    ):
        self.fault, self.token, self.first, self.hold = fault, token, first, hold
        self.models = models
        self.cache: set[tuple[int, ...]] | None = set() if cached else None
        self.asked: list[dict[str, Any]] = []
        self.company = threading.Barrier(together)
        self.open = self.most = self.connections = 0
        self.lock = threading.Lock()
        self.keys: set[str | None] = set()
        self.sockets: set[socket.socket] = set()
        self._http = _Quiet(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": self}))
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Nobody listens any more, and whoever was connected is cut off."""
        self._http.shutdown()
        self._http.server_close()
        with self.lock:
            sockets, self.sockets = self.sockets, set()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serving(*args: Any, **options: Any) -> Iterator[FakeServer]:
    server = FakeServer(*args, **options)
    try:
        yield server
    finally:
        with contextlib.suppress(OSError):
            server.stop()


class _Quiet(ThreadingHTTPServer):
    """Says nothing of clients that go away."""

    daemon_threads = True
    request_queue_size = 128  # clients that connect at the same moment

    def handle_error(self, request: Any, client_address: Any) -> None: ...


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def setup(self) -> None:
        super().setup()
        with self.fake.lock:
            self.fake.connections += 1
            self.fake.sockets.add(self.connection)

    def do_GET(self) -> None:
        if self.fake.models:
            self.close_connection = True
            self.wfile.write(self.fake.models)
            return
        self._whole(200, {"object": "list", "data": [{"id": "fake", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.fake.keys.add(self.headers["Authorization"])
        fake = self.fake
        with fake.lock:
            number = len(fake.asked)
            fake.asked.append(body)
            fake.open += 1
            fake.most = max(fake.most, fake.open)
        try:
            self._answer(body, fake.fault(number))
        finally:
            with fake.lock:
                fake.open -= 1

    def _answer(self, body: dict[str, Any], fault: str | bytes) -> None:
        if isinstance(fault, bytes):
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.wfile.write(fault)
            if self.fake.hold is not None:
                self.fake.hold.wait(20)
            return
        fake, prompt, tokens = self.fake, tuple(body["prompt"]), body["max_tokens"]
        if fault.isdecimal():
            self._whole(int(fault), {"error": {"message": "too much to do", "type": "overloaded"}})
            return
        if fault == "html":
            self._whole(200, {})
            return
        cached = None
        if fake.cache is not None:
            cached = len(prompt) - 1 if prompt in fake.cache else 0
            fake.cache.add(prompt)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        fake.company.wait(20)
        time.sleep(fake.first)
        for i in range(tokens):
            if fault == "dies" and i == tokens // 2:
                self.close_connection = True
                self.connection.close()
                return
            if fault == "stops" and i == tokens // 2:  # in good order, but too early
                self._chunk(b"")
                return
            if fault == "malformed" and i == tokens // 2:
                self._event('{"choices": [{"text": ')
            if fault == "hangs" and i == tokens // 2:
                time.sleep(3)
            time.sleep(fake.token)
            finish = "length" if i == tokens - 1 else None
            self._event(json.dumps({"choices": [{"index": 0, "text": f"t{i}", "finish_reason": finish}]}))
        if body.get("stream_options", {}).get("include_usage"):
            details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
            counts = {"prompt_tokens": len(prompt), "completion_tokens": tokens, **details}
            self._event(json.dumps({"choices": [], "usage": counts}))
        if fault != "no done":
            self._event("[DONE]")
        self._chunk(b"")

    def _event(self, data: str) -> None:
        self._chunk(f"data: {data}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the client may have gone
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    def _whole(self, code: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
