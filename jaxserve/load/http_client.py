"""Any server with OpenAI's API, over HTTP: streamed completions of token prompts. One thread; what comes is stamped as it is read."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import math
import os
import time
from collections.abc import Callable
from typing import Any, Self

from costmodel.endings import Shield
from jaxserve.load.client import Item, Known
from jaxserve.load.recorder import CHUNKS, FAILED, UNFINISHED, RequestRecord
from jaxserve.load.served import REFUSED
from jaxserve.load.sse import Events
from jaxserve.load.stream import Stream, said
from models.errors import UserError

try:
    import httpx2 as http
except ModuleNotFoundError:
    raise UserError("asking a server over HTTP needs the extra http; pip install 'jaxserve[http]'") from None

FULL = (429, 503)  # HTTP status: too much to do, later may help
PATIENCE = (
    5.0  # s for what an error says, for the end of a body after [DONE], and for the question whether anybody still listens
)
IDLE = 3.0  # s after which a connection isn't used again; servers close theirs after 5, perhaps while a request is on its way
FIRST = 30.0  # s in which the first question must be answered
BEGINNING, LISTING = 2**16, 2**24  # bytes that are read of an error, and of a list of models
STREAM = "text/event-stream"
OWN = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)  # no files or no ports are left here


class HttpClient:
    """A `Client` of a server at a URL.

    Args:
      url: of its API, with or without /v1.
      model: as the server calls it; None for the first that it lists.
      timeout: s without a byte after which a request has failed.
      key: for servers that want one.
      ignore_eos: ask for answers that end at their limit alone, as vLLM, SGLang and llama.cpp can; other servers may not know the word.
      count: tokens of a text, for answers of which the server doesn't say how many they have.

    Attributes:
      gone: once nobody listens there any more.

    Raises:
      UserError: nobody listens there, or it is no URL.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        timeout: float = 600.0,
        key: str | None = None,
        ignore_eos: bool = True,
        count: Callable[[str], int] | None = None,
    ):
        base = url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.gone = ""
        self._url, self._ignore, self._count, self._timeout = base, ignore_eos, count, timeout
        self._uncounted: dict[int, str] = {}  # texts of answers, by the requests' ids
        self._runner = asyncio.Runner()
        # Not through a proxy, and as many connections as there are requests: neither is to be measured.
        self._http = http.AsyncClient(
            headers=headers,
            timeout=http.Timeout(timeout),
            limits=http.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE),
            trust_env=False,
        )
        self._tasks: set[asyncio.Task[RequestRecord]] = set()  # under way
        self._done: list[asyncio.Task[RequestRecord]] = []
        self._news = asyncio.Event()  # something is done
        # A signal raises between two turns of the loop and never within a request, whose record it would be.
        self._shield = Shield(lambda: self._runner.get_loop().call_soon_threadsafe(self._news.set))
        self._start = time.monotonic()
        self._caches = False
        try:
            self._model = self._runner.run(self._look(model))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        self._shield.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._shield.__exit__(*error)
        self._runner.run(self._http.aclose())
        self._runner.close()

    def begin(self) -> None:
        self._start, self.gone, self._caches = time.monotonic(), "", False
        self._uncounted.clear()

    def clock(self) -> float:
        return time.monotonic() - self._start

    @property
    def idle(self) -> bool:
        return not (self._tasks or self._done)

    def send(self, item: Item, intended: float) -> None:
        task = self._runner.get_loop().create_task(self._ask(item, intended))
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def wait(self, until: float) -> list[RequestRecord]:
        with self._shield.up():
            self._runner.run(self._passing(until - self.clock()))
        return self._collect()

    def stop(self) -> list[RequestRecord]:
        with self._shield.up():
            left = set(self._tasks)
            for task in left:
                task.cancel()
            if left:
                self._runner.run(_all(left))
            return self._collect()

    def known(self) -> Known:
        settings = {"target": "http", "url": self._url, "model": self._model, "ignore_eos": self._ignore}
        counts = {id: self._count(text) for id, text in self._uncounted.items()} if self._count else {}
        return Known(settings, caches=self._caches, counts=counts)

    async def _passing(self, left: float) -> None:
        """Time, until a request has ended or so much of it has gone; what comes meanwhile is read."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), None if left == math.inf else max(left, 0.0))

    def _collect(self) -> list[RequestRecord]:
        done, self._done = self._done, []
        self._news.clear()
        return [task.result() for task in done]

    def _end(self, task: asyncio.Task[RequestRecord]) -> None:
        self._tasks.discard(task)
        self._done.append(task)
        self._news.set()

    async def _look(self, model: str | None) -> str:
        """Whether somebody is there, and which model is to be asked for."""
        try:
            async with self._http.stream("GET", f"{self._url}/v1/models", timeout=min(self._timeout, FIRST)) as response:
                if model:
                    return model
                text = await _beginning(response, LISTING)
        except http.InvalidURL as error:
            raise UserError(f"--url {self._url} is no URL ({error}); give one such as http://localhost:8000") from None
        except http.UnsupportedProtocol:
            raise UserError(f"--url {self._url} is no URL of the web; give one such as http://localhost:8000") from None
        except Exception as error:  # also those of a port that no machine has, which are none of the library's own
            raise UserError(f"no server answers at {self._url} ({_said(error)}); start it, or mend --url") from None
        try:
            return str(json.loads(text)["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            told = f"HTTP {response.status_code}: {_in_words(text)}"
            raise UserError(f"the server at {self._url} doesn't list its models ({told}); name one with --model") from None

    async def _ask(self, item: Item, intended: float) -> RequestRecord:
        """One request, from its beginning to whatever end."""
        stream, sent, reason, error, broken = Stream(), self.clock(), "", "", False
        try:
            async with self._http.stream("POST", f"{self._url}/v1/completions", json=self._body(item)) as response:
                if response.status_code == 200:
                    await self._read(response, stream)
                else:
                    reason = REFUSED if response.status_code in FULL else FAILED
                    error = f"HTTP {response.status_code}: {await _complaint(response)}"
        except asyncio.CancelledError:  # only ever by `stop`
            reason = UNFINISHED
        except http.ConnectError as problem:
            reason, error = FAILED, f"no connection: {_said(problem)}"
            if (own := _own_limit(problem)) is None:
                self._lost(problem)
            else:
                error = f"no connection: {own}, a limit of this machine and not of the server; raise it (ulimit -n), or send less at once"
        except http.TimeoutException as problem:
            reason, error = FAILED, f"timeout: {_said(problem)}"
        except http.HTTPError as problem:
            reason, error, broken = FAILED, f"the answer broke off: {_said(problem)}", True
        except Exception as problem:  # whatever a server may send, it is one request that fails and not the run
            reason, error = FAILED, f"the answer can't be read: {_said(problem)}"
        if not reason or not math.isnan(stream.done):  # whatever became of the connection after that
            reason, error = stream.verdict()
        end = self.clock() if math.isnan(stream.done) else stream.done
        if broken:
            await self._listens()
        self._caches |= stream.cached is not None
        if self._count and stream.counted == CHUNKS and stream.text:
            self._uncounted[item.id] = stream.text
        nan = math.nan
        return RequestRecord(
            id=item.id,
            intended=intended,
            sent=sent,
            submitted=nan,
            ready=nan,
            started=nan,
            prefilled=nan,
            tokens=tuple(stream.times),
            end=end,
            prompt=len(item.prompt),
            output=stream.output,
            cached=stream.cached or 0,
            reason=reason,
            error=error,
            counted=stream.counted,
        )

    async def _read(self, response: http.Response, stream: Stream) -> None:
        """The body of an answer: to its end, so that the connection can be used again, but for one that has failed."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("", STREAM):
            stream.fail(f"the answer is {said(kind)}, not the {STREAM} that was asked for: {await _complaint(response)}")
            return
        events = Events()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                async for data in response.aiter_bytes():
                    now = self.clock()
                    for event in events.feed(data):
                        stream.add(event, now)
                        if stream.broken:
                            return
                    if not math.isnan(stream.done) and limit.when() is None:  # a server may leave the stream open all the same
                        limit.reschedule(asyncio.get_running_loop().time() + PATIENCE)
        stream.close(events.rest(), events.unread, self.clock())

    async def _listens(self) -> None:
        """After an answer broke off: perhaps no other request is due that would find nobody there."""
        try:
            async with self._http.stream("GET", f"{self._url}/v1/models", timeout=PATIENCE):
                pass
        except http.ConnectError as problem:
            self._lost(problem)
        except (asyncio.CancelledError, http.HTTPError):  # `stop` waits for nobody; whatever else it is, somebody listens
            return

    def _lost(self, problem: Exception) -> None:
        self.gone = f"the server at {self._url} is gone ({_said(problem)})"

    def _body(self, item: Item) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": list(item.prompt),
            "max_tokens": item.output,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return {**body, "ignore_eos": True} if self._ignore else body


async def _all(tasks: set[asyncio.Task[RequestRecord]]) -> None:
    await asyncio.wait(tasks)


def _said(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}{': ' if str(error) else ''}{str(error).partition(chr(10))[0]}"


async def _complaint(response: http.Response) -> str:
    """What a response says that is no stream, in OpenAI's form or any other; of a long one its beginning."""
    if place := response.headers.get("location"):
        return f"it is at {said(place)}; give that as --url"
    return _in_words(await _beginning(response, BEGINNING))


async def _beginning(response: http.Response, size: int) -> str:
    """So much of a body that is no stream, or what has come of it within `PATIENCE`."""
    body = bytearray()
    with contextlib.suppress(http.HTTPError, TimeoutError):  # what has come says enough
        async with asyncio.timeout(PATIENCE):
            async for data in response.aiter_bytes():
                body += data
                if len(body) > size:
                    break
    return body[:size].decode("utf-8", "replace")


def _in_words(text: str) -> str:
    """What an answer says that is no stream."""
    with contextlib.suppress(ValueError, RecursionError):
        return said(json.loads(text))
    return said(text)


def _own_limit(error: BaseException | None) -> str | None:
    """Which limit of this machine kept a connection from being made; None where it was none."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in OWN:
            return os.strerror(error.errno)
        error = error.__cause__ or error.__context__
    return None
