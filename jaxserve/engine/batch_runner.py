"""Requests that are all known at the beginning, run to their ends."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from costmodel.endings import Shield
from jaxserve.engine.engine import Engine
from jaxserve.engine.input_processor import Given, numbered
from jaxserve.engine.request_handle import Piece, RequestHandle
from jaxserve.sampling_params import SamplingParams

PRIORITY = 1
Ask = tuple[Given, SamplingParams]  # a prompt, and what is asked of its answers


class BatchRunner:
    """A list of requests on an engine, which may serve others beside.

    Args:
      engine: where they run.
      asks: the requests.

    Attributes:
      handles: of those that are in the engine by now, in order. More come as its queue has room.
      live: those that have not ended, in order, each with its number from 0.

    Raises:
      UserError: one of them can't be served; it is named by its number, from 1, and none of them stays in the engine.
    """

    def __init__(self, engine: Engine, asks: Sequence[Ask]):
        self.engine, self._asks = engine, list(asks)
        self.handles: list[RequestHandle] = []
        self.live: dict[RequestHandle, int] = {}
        self._shield = Shield()
        if self._size is not None:  # then some come to the engine only when others have ended
            for number, ask in enumerate(self._asks, start=1):
                with numbered(number):
                    engine.check(*ask)
        try:
            with self._shield.up():
                self._submit()
        except BaseException:
            self._abort()
            raise

    @property
    def waiting(self) -> int:
        """Requests that the engine's queue had no room for yet."""
        return len(self._asks) - len(self.handles)

    def steps(self) -> Generator[list[Piece]]:
        """Step after step until all have ended: what each brought to them. Whoever closes it early gives up the rest.

        Ctrl-C, and in a command SIGTERM and SIGHUP, is heard between steps, so that the engine stays whole.
        """
        try:
            with self._shield:
                while self.live:
                    with self._shield.up():
                        pieces = [piece for piece in self.engine.step() if piece.handle in self.live]
                    yield pieces
                    with self._shield.up():
                        self.ended(pieces)
                        self._submit()
                    if self.engine.idle:  # if any are left, others have taken them out
                        return
                    self.engine.wait()
        finally:
            self._abort()

    def ended(self, pieces: Iterable[Piece]) -> list[int]:
        """Which requests have ended with these pieces and were not told of before, by their numbers."""
        ended = dict.fromkeys(piece.handle for piece in pieces if piece.handle.finished)
        return [self.live.pop(handle) for handle in ended if handle in self.live]

    def _submit(self) -> None:
        """As many as the queue takes: a request that it refuses would be written down as refused, and tried again and again."""
        while self.waiting and (self._size is None or self.engine.status().waiting < self._size):
            prompt, params = self._asks[len(self.handles)]
            with numbered(len(self.handles) + 1):
                handle = self.engine.submit(prompt, params, priority=PRIORITY)
            self.live[handle] = len(self.handles)
            self.handles.append(handle)

    @property
    def _size(self) -> int | None:
        """Of the engine's queue."""
        return self.engine.policy.limits.rule(PRIORITY).size

    def _abort(self) -> None:
        with self._shield.up():
            for handle in self.live:
                self.engine.abort(handle)
            self.live.clear()
