"""The engine of this process as a server: driven in the same thread, which submits what is due before each step."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Self

from costmodel.endings import Shield
from costmodel.hardware.host import host_key
from jaxserve.engine.engine import Engine
from jaxserve.engine.request_handle import RequestHandle
from jaxserve.load.client import Item, Known
from jaxserve.load.recorder import FAILED, UNFINISHED, Recorder, RequestRecord
from jaxserve.load.result import Pool
from jaxserve.load.served import REFUSED
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.names import policy_json, policy_name
from jaxserve.scheduling.request import QueueFull
from models.errors import UserError


@dataclasses.dataclass
class _Sent:
    """A request that is under way."""

    item: Item
    handle: RequestHandle
    intended: float
    sent: float
    tokens: list[float]


class EngineClient:
    """A `Client` of an engine.

    Args:
      make: builds the engine, given who is to watch its scheduler.
      clock, sleep: s; those of the engine.

    Attributes:
      engine: what `make` built.
      gone: the error with which it stopped, if it did.
    """

    def __init__(
        self,
        make: Callable[[Recorder], Engine],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._recorder = Recorder(self._over)
        self.engine = make(self._recorder)
        self.gone = ""
        self._now, self._sleep = clock, sleep
        self._start = clock()
        self._open: dict[int, _Sent] = {}  # by the engine's id
        self._ended: list[RequestRecord] = []  # as the scheduler saw them; the client has not yet
        self._refused: list[RequestRecord] = []
        self._shield = Shield()

    def __enter__(self) -> Self:
        self._shield.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._shield.__exit__(*error)

    def begin(self) -> None:
        self._recorder.steps.clear()
        self._open.clear()
        self._ended.clear()
        self._start, self.gone = self._now(), ""

    def clock(self) -> float:
        return self._now() - self._start

    @property
    def idle(self) -> bool:
        return not (self._open or self._refused)

    def send(self, item: Item, intended: float) -> None:
        with self._shield.up():
            sent = self.clock()
            try:
                handle = self.engine.submit(item.prompt, SamplingParams(max_tokens=item.output, ignore_eos=True))
            except UserError as error:
                reason = REFUSED if isinstance(error, QueueFull) else FAILED
                self._refused.append(self._without(item, intended, sent, reason, str(error)))
            else:
                self._open[handle.id] = _Sent(item, handle, intended, sent, [])

    def wait(self, until: float) -> list[RequestRecord]:
        while not (over := self._collect()) and not self.gone:
            left = until - self.clock()
            if left <= 0:
                break
            if self.engine.idle:
                self._sleep(left)  # only ever for an arrival: where nothing is under way and nothing is to come, nobody waits
                continue
            try:
                self.engine.wait(self._start + until)  # where the policy holds requests back
            except RuntimeError as error:  # and nothing would ever let them go
                self.gone = f"the engine stopped: {error}"
                break
            with self._shield.up():
                self._step()
        return over

    def stop(self) -> list[RequestRecord]:
        with self._shield.up():
            over = self._collect()
            for sent in list(self._open.values()):
                self.engine.abort(sent.handle)  # the scheduler tells the recorder, and that us
            ended = [record._replace(reason=UNFINISHED) for record in self._collect()]
            lost = [self._without(s.item, s.intended, s.sent, UNFINISHED, "", s.tokens) for s in self._open.values()]
            self._open.clear()
            return [*over, *ended, *lost]

    def known(self) -> Known:
        engine, start = self.engine, self._start
        pool = engine.pool
        steps = tuple(step._replace(at=step.at - start) for step in self._recorder.steps)
        settings: dict[str, Any] = {
            "target": "engine",
            "device": host_key(),
            "model": engine.model.name,
            "dtype": engine.model.dtype,
            "policy": policy_name(engine.policy),
            "rows": engine.policy.limits.rows,
            "context": engine.context,
            "scheduling": policy_json(engine.policy),
            "pool": dataclasses.asdict(pool),
            "ladder": engine.ladder.to_json(),
        }
        programs = tuple(dict.fromkeys(bucket.name for bucket in engine.ladder.buckets()))
        return Known(settings, steps, Pool(engine.status().total_pages, pool.unit, pool.kind), programs, caches=True)

    def _step(self) -> None:
        """One turn of the engine, and when its tokens were here."""
        try:
            pieces = self.engine.step()
        except Exception as error:  # a device that is lost, or a fault of ours: what was measured so far is worth keeping
            self.gone = f"the engine stopped: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return
        now = self.clock()
        for piece in pieces:
            if (sent := self._open.get(piece.handle.id)) is not None:
                sent.tokens += [now] * len(piece.tokens)

    def _over(self, record: RequestRecord) -> None:
        self._ended.append(record)

    def _collect(self) -> list[RequestRecord]:
        """Records of requests that have ended, with the client's own times."""
        over, start, now = self._refused, self._start, self.clock()
        self._refused = []
        for record in self._ended:
            if (sent := self._open.pop(record.id, None)) is None:
                continue  # refused: it never came in
            over.append(
                record._replace(
                    id=sent.item.id,
                    intended=sent.intended,
                    sent=sent.sent,
                    submitted=record.submitted - start,
                    ready=record.ready - start,
                    started=record.started - start,
                    prefilled=record.prefilled - start,
                    tokens=tuple(sent.tokens),
                    end=max(sent.tokens[-1], record.end - start) if sent.tokens else now,
                    output=len(sent.tokens),
                )
            )
        self._ended.clear()
        return over

    def _without(
        self, item: Item, intended: float, sent: float, reason: str, error: str, tokens: list[float] | None = None
    ) -> RequestRecord:
        """Of a request of which the scheduler tells nothing."""
        nan, came = math.nan, tuple(tokens or ())
        times = (intended, sent, nan, nan, nan, nan, came, self.clock())
        return RequestRecord(item.id, *times, len(item.prompt), len(came), reason=reason, error=error)
