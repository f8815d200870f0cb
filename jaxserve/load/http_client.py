"""Any server with OpenAI's API, over HTTP: streamed completions of token prompts. One thread; what comes is stamped as it is read."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping
from typing import Any, Self

from jaxserve.load.client import Item, Known
from jaxserve.load.record import FAILED, UNFINISHED, Record
from jaxserve.load.stream import Stream
from jaxserve.served import REFUSED
from models.errors import UserError

try:
    import httpx2 as http
except ModuleNotFoundError:
    raise UserError("asking a server over HTTP needs the extra http; pip install 'jaxserve[http]'") from None

FULL = (429, 503)  # HTTP status: too much to do, later may help
PATIENCE = 5.0  # s, of the question whether anybody still listens


class HttpClient:
    """A `Client` of a server at a URL.

    Args:
      url: of its API, with or without /v1.
      model: as the server calls it; None for the first that it lists.
      timeout: s without a byte after which a request has failed.
      key: for servers that want one.
      ignore_eos: ask for answers that end at their limit alone, as vLLM, SGLang and llama.cpp can; other servers may not know the word.

    Attributes:
      gone: once nobody listens there any more.

    Raises:
      UserError: nobody listens there, or it is no URL.
    """

    def __init__(
        self, url: str, model: str | None = None, *, timeout: float = 600.0, key: str | None = None, ignore_eos: bool = True
    ):
        base = url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.gone = ""
        self._url, self._ignore = base, ignore_eos
        self._runner = asyncio.Runner()
        # Not through a proxy, and as many connections as there are requests: neither is to be measured.
        self._http = http.AsyncClient(
            headers=headers,
            timeout=http.Timeout(timeout),
            limits=http.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=False,
        )
        self._tasks: set[asyncio.Task[Record]] = set()  # under way
        self._done: list[asyncio.Task[Record]] = []
        self._news = asyncio.Event()  # something is done
        self._start = time.monotonic()
        self._caches = False
        try:
            self._model = self._runner.run(self._look(model))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()

    def begin(self) -> None:
        self._start, self.gone, self._caches = time.monotonic(), "", False

    def clock(self) -> float:
        return time.monotonic() - self._start

    @property
    def idle(self) -> bool:
        return not (self._tasks or self._done)

    def send(self, item: Item, intended: float) -> None:
        task = self._runner.get_loop().create_task(self._ask(item, intended))
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def wait(self, until: float) -> list[Record]:
        self._runner.run(self._passing(until - self.clock()))
        return self._collect()

    def stop(self) -> list[Record]:
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            self._runner.run(_all(left))
        return self._collect()

    def known(self) -> Known:
        return Known(
            {"target": "http", "url": self._url, "model": self._model, "ignore_eos": self._ignore}, caches=self._caches
        )

    async def _passing(self, left: float) -> None:
        """Time, until a request has ended or so much of it has gone; what comes meanwhile is read."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), None if left == math.inf else max(left, 0.0))

    def _collect(self) -> list[Record]:
        done, self._done = self._done, []
        self._news.clear()
        return [task.result() for task in done]

    def _end(self, task: asyncio.Task[Record]) -> None:
        self._tasks.discard(task)
        self._done.append(task)
        self._news.set()

    async def _look(self, model: str | None) -> str:
        """Whether somebody is there, and which model is to be asked for."""
        try:
            found = await self._http.get(f"{self._url}/v1/models")
            return model or str(found.json()["data"][0]["id"])
        except http.InvalidURL as error:
            raise UserError(f"--url {self._url} is no URL ({error}); give one such as http://localhost:8000") from None
        except http.UnsupportedProtocol:
            raise UserError(f"--url {self._url} is no URL of the web; give one such as http://localhost:8000") from None
        except http.TransportError as error:
            raise UserError(f"no server answers at {self._url} ({_said(error)}); start it, or mend --url") from None
        except (ValueError, KeyError, IndexError, TypeError):
            raise UserError(f"the server at {self._url} doesn't list its models; name one with --model") from None

    async def _ask(self, item: Item, intended: float) -> Record:
        """One request, from its beginning to whatever end."""
        stream, sent, reason, error, broken = Stream(), self.clock(), "", "", False
        try:
            async with self._http.stream("POST", f"{self._url}/v1/completions", json=self._body(item)) as response:
                if response.status_code != 200:
                    await response.aread()
                    reason = REFUSED if response.status_code in FULL else FAILED
                    error = f"HTTP {response.status_code}: {_message(response)}"
                else:
                    async for event in http.EventSource(response):
                        stream.add(event.data, self.clock())
                        if stream.broken:
                            break  # else to the end of the body, so that the connection can be used again
                    reason, error = stream.verdict()
        except asyncio.CancelledError:  # only ever by `stop`
            reason = UNFINISHED
        except http.ConnectError as problem:
            reason, error = FAILED, f"no connection: {_said(problem)}"
            self._lost(problem)
        except http.TimeoutException as problem:
            reason, error = FAILED, f"timeout: {_said(problem)}"
        except http.HTTPError as problem:
            reason, error, broken = FAILED, f"the answer broke off: {_said(problem)}", True
        if not math.isnan(stream.done):  # whatever became of the connection after that
            reason, error = stream.verdict()
        end = self.clock() if math.isnan(stream.done) else stream.done
        if broken:
            await self._listens()
        self._caches |= stream.cached is not None
        nan = math.nan
        return Record(
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
        )

    async def _listens(self) -> None:
        """After an answer broke off: perhaps no other request is due that would find nobody there."""
        try:
            await self._http.get(f"{self._url}/v1/models", timeout=PATIENCE)
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


async def _all(tasks: set[asyncio.Task[Record]]) -> None:
    await asyncio.wait(tasks)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}{': ' if str(error) else ''}{str(error).partition(chr(10))[0]}"


def _message(response: http.Response) -> str:
    """What an error response says, in OpenAI's form or any other."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        found = response.json()
        problem = found["error"] if isinstance(found, Mapping) and "error" in found else found
        return str(problem["message"] if isinstance(problem, Mapping) else problem)[:200]
    return response.text.partition("\n")[0][:200] or "(nothing said)"
