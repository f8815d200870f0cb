"""Whoever a load is sent to, as the harness drives it: requests go in, time passes, records come out. One thread."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Pool
from jaxserve.scheduling.step_record import StepRecord


class Item(NamedTuple):
    """One request, as it is sent.

    Attributes:
      id: in its run, from 0.
      prompt: token ids.
      output: tokens of its answer, which has no end of its own before.
    """

    id: int
    prompt: tuple[int, ...]
    output: int


class Known(NamedTuple):
    """What a client knows of the server.

    Attributes:
      caches: whether it says how many prompt tokens it found cached.
      counts: tokens of answers, by the requests' ids, that a tokenizer counted afterwards, because the server doesn't say.
    """

    settings: dict[str, Any]
    steps: tuple[StepRecord, ...] = ()
    pool: Pool | None = None
    programs: tuple[str, ...] = ()
    caches: bool = False
    counts: Mapping[int, int] = MappingProxyType({})


class Client(Protocol):
    """A context, within which requests are sent. Times are s since `begin`.

    Attributes:
      gone: why nothing can be asked any more; empty while all is well.
    """

    gone: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def begin(self) -> None:
        """A run begins: time is 0 now. Nothing of an earlier run is left."""

    def clock(self) -> float:
        """s since `begin`, on a monotonic clock."""

    def send(self, item: Item, intended: float) -> None:
        """Hand a request over now. intended: s, when it was due."""

    @property
    def idle(self) -> bool:
        """Nothing that was sent is under way."""

    def wait(self, until: float) -> list[RequestRecord]:
        """Let time pass, to `until` at most; comes back as soon as requests have ended, with their records.

        Raises:
          KeyboardInterrupt: Ctrl-C; the client is whole.
        """

    def stop(self) -> list[RequestRecord]:
        """Give up all that is under way, and tell of it as unfinished."""

    def known(self) -> Known:
        """Of the server, as far as this run has shown."""
