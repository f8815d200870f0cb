"""The engine: requests in, tokens out, under any policy, over either kind of KV memory. Its loop is in `core.py`."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jaxserve.engine.compatibility import check_compatibility
from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.engine.core import EngineCore
from jaxserve.engine.input_batch import InputBatch
from jaxserve.engine.input_processor import Given, InputProcessor, checked, fresh_seed
from jaxserve.engine.model import Model
from jaxserve.engine.model_runner import ModelRunner
from jaxserve.engine.output_processor import OutputProcessor
from jaxserve.engine.prepare_inputs import InputPreparer
from jaxserve.engine.request_handle import Piece, RequestHandle
from jaxserve.engine.snapshot import read, taken
from jaxserve.engine.stats import EngineStats, Tally, recorder
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.features import PLAIN, Features
from jaxserve.programs.program_set import Program
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.scheduler import Scheduler
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.speculative.ngram import NGram
from models.errors import UserError

GREEDY = SamplingParams()


class EngineFailed(RuntimeError):
    """A step of this engine has raised, so what its KV holds is not known any more. `__cause__` is what it raised."""


class Engine:
    """Serves a model. Several threads may use one engine: their calls take turns.

    After an exception within a step the engine has failed: the handles that it served end with "error", and every later call raises
    `EngineFailed`, but for `snapshot`, with which another engine goes on, `status` and `abort`.

    Args:
      model: the model.
      policy: who runs when; see `jaxserve.scheduling`.
      pool: the KV memory of each worker.
      ladder: the programs; all of them are compiled here, and after that nothing compiles.
      features: what requests may ask for beyond drawing tokens.
      drafter: speculate by prompt lookup, with drafts of this length at most.
      workers: KV pools; `Disaggregated` takes at least two.
      log: is told every decision and every step, such as `StepLog`.
      predictor: what a plan should take, s, from the cost model; it stands in the records beside what was measured.
      compiled: called with each program that is ready, for a progress bar.
      cache: where compiled programs are kept for the next start; nowhere by default.
      prepared: of another engine of the same model, pool, ladder and features: its programs serve here too, and nothing is compiled.
      seeds: called for the seed of each request that has none and draws tokens, from 0 to 2**32 - 1.
      clock, sleep: s.

    Attributes:
      prepared: all that was compiled; `programs` are those of the steps.
      records: of the last steps.
      context: tokens of the longest sequence.
      failure: what a step raised; None while the engine serves.

    Raises:
      UserError: the parts don't fit each other; before anything is compiled.
    """

    def __init__(
        self,
        model: Model,
        policy: Policy,
        pool: KVLayout,
        ladder: Buckets,
        *,
        features: Features = PLAIN,
        drafter: NGram | None = None,
        workers: int = 1,
        log: Observer | None = None,
        predictor: Callable[[Plan], float] | None = None,
        compiled: Callable[[Program], None] = lambda program: None,
        cache: CompileCache | None = None,
        prepared: CompiledPrograms | None = None,
        seeds: Callable[[], int] = fresh_seed,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.context = check_compatibility(model, policy, pool, ladder, features, drafter, workers)
        if prepared:
            prepared.check(model, pool, ladder, features, workers)
        self.model, self.policy, self.pool, self.ladder = model, policy, pool, ladder
        self.records: deque[StepRecord] = deque(maxlen=10_000)
        pools = [
            model.empty_pool(pool.units, pool.unit, pool.dtype, contiguous=pool.kind == "contiguous") for _ in range(workers)
        ]
        self.prepared = prepared or CompiledPrograms.of(
            model, pool, ladder, features, pools[0], workers=workers, compiled=compiled, cache=cache
        )
        self.programs = self.prepared.programs
        seats = InputBatch(self.context, ladder.widths[-1], pool.units)
        self._scheduler = Scheduler(policy, State.of(*(pool.memory() for _ in range(workers))), log)
        self._intake = InputProcessor(model.tokenizer, model.config.vocab_size, features, self.context, seeds)
        self._clients = OutputProcessor(drafter)
        self._tally, self._clock, self._sleep = Tally(pool.units * workers), clock, sleep
        self._lock = threading.RLock()
        self.failure: BaseException | None = None
        self._loop = EngineCore(
            self._scheduler,
            self._clients,
            InputPreparer(ladder, seats, features, pool.units),
            seats,
            [ModelRunner(self.programs, kv, self.prepared.mover, seats) for kv in pools],
            stepped=recorder(self.records, self._tally, log),
            predictor=predictor,
            clock=clock,
        )

    def submit(
        self,
        prompt: Given,
        params: SamplingParams = GREEDY,
        *,
        priority: int = 1,
        timeout: float = math.inf,
        raw: bool = False,
    ) -> RequestHandle:
        """Take a request in. Its tokens come from `step`.

        Args:
          prompt: token ids; a text: the user's turn of a chat where the model has a template; or messages; see `intake.read`.
          priority: a whole number; lower ones go first.
          timeout: s after which it is dropped if it still waits for its first step.
          raw: a text is taken as it is, for the model to go on with.

        Raises:
          UserError: it could never be served; nothing has changed then.
          QueueFull: too many wait; later may help.
          EngineFailed: a step has raised.
        """
        asked, (priority, timeout) = self._intake.read(prompt, raw), checked(priority, timeout)
        params = self._intake.settled(params)
        with self._lock:
            self._serving()
            id, now = self._scheduler.state.next_id, self._clock()
            when: dict[str, Any] = {"arrival": now, "priority": priority, "timeout": timeout}
            request = self._intake.request(id, asked, params, **when)
            handle = self._intake.handle(id, asked, params, **when)
            self._enter(request, handle, range(params.n), now)
            return handle

    def check(self, prompt: Given, params: SamplingParams = GREEDY, *, raw: bool = False) -> None:
        """Raises UserError for what `submit` could never take; a full queue is none of that. Nothing is taken in."""
        asked = self._intake.read(prompt, raw)
        with self._lock:
            self._serving()
            self._scheduler.check(self._intake.request(self._scheduler.state.next_id, asked, params, arrival=self._clock()))

    def step(self) -> list[Piece]:
        """One turn: plan what can be planned, wait for the oldest step under way, hand over the next, and unpack what has arrived.

        Returns:
          What it brought, by request and sample. Nothing where nothing could run: see `wait`.

        Raises:
          EngineFailed: an earlier step has raised. The step that fails raises what happened itself.
          UserError: a plan was refused, as where the step log's disk is full; the engine has not failed.
        """
        with self._lock:
            self._serving()
            try:
                return self._loop.step()
            except UserError:  # a plan that was refused, as where the step log's disk is full: nothing has changed
                raise
            except BaseException as error:  # Ctrl-C within it too: a step that was dispatched may be lost
                self.failure = error
                for handle in self._clients.handles:
                    handle.fail(_named(error))
                raise

    @property
    def idle(self) -> bool:
        """Nothing waits, runs, or is to be reported."""
        return self.failure is not None or self._loop.idle

    @property
    def live(self) -> list[RequestHandle]:
        """Requests that have not ended, in the order in which they came."""
        with self._lock:
            return [] if self.failure else self._clients.handles

    def wait(self, until: float = math.inf) -> None:
        """Sleep until the policy wants to be asked again; returns at once where a step is under way or can be tried.

        Args:
          until: s, on the engine's clock, when there will be news for it: it is not slept beyond.

        Raises:
          EngineFailed: a step has raised.
          RuntimeError: requests wait, and the policy would leave them waiting for ever.
        """
        with self._lock:
            self._serving()
            due = self._loop.due(until)
        if due is not None:  # without the lock, so that others may submit meanwhile
            self._sleep(max(due - self._clock(), 0))
            self._loop.news()

    def run(self) -> Iterator[Piece]:
        """Everything that comes until nothing is left to do. Raises EngineFailed where a step has raised before."""
        self._serving()
        while not self.idle:
            yield from self.step()
            self.wait()

    def stream(self, handle: RequestHandle) -> Iterator[Piece]:
        """What comes for one request until it has ended. Others go on meanwhile, and several may be streamed in turn.

        Raises:
          UserError: it is served by another engine.
          EngineFailed: the request ended because a step has raised.
        """
        if not (handle.finished or self._clients.of(handle)):
            raise UserError(f"{handle} is not served by this engine, so nothing would ever come; ask the one that took it in")
        shown, seen = [0] * len(handle.answers), [0] * len(handle.answers)
        while True:
            done = handle.finished
            for i, answer in enumerate(handle.answers):
                text, tokens = answer.text[shown[i] :], tuple(answer.tokens[seen[i] :])
                if text or tokens:
                    shown[i], seen[i] = shown[i] + len(text), seen[i] + len(tokens)
                    yield Piece(handle, i, tokens, text)
            if done:
                if handle.error:
                    self._serving()
                return
            self.step()
            self.wait()

    def abort(self, handle: RequestHandle) -> None:
        """Nobody wants the answers any more; what they have so far stays. Nothing happens to those that have ended."""
        with self._lock:
            if self.failure:
                return  # all of them have ended
            now = self._clock()
            for id in self._clients.of(handle):
                self._clients.samples[id].answer.abort()
                self._scheduler.cancel(id, now)
                self._loop.drop(id)
            self._loop.news()

    def snapshot(self) -> dict[str, Any]:
        """All requests that have not ended, as plain data (JSON): prompts, settings, and the tokens so far. KV is not kept.

        Of an engine that has failed: those that had not ended by then.
        """
        with self._lock:
            waiting = {row.id for row in self._scheduler.state.waiting if not row.ran}
            return taken(self.model, self._clients.handles, waiting, self._clock())

    def restore(self, snapshot: Mapping[str, Any]) -> dict[int, RequestHandle]:
        """Go on with the requests of a snapshot, of this engine or another one of the same model: their handles, by their old ids.

        Each prompt and what was drawn after it is run again; the rest of every answer is what it would have been.

        Raises:
          UserError: it is no snapshot, or of another model; or a request doesn't fit this engine. Nothing has changed then.
        """
        with self._lock:
            self._serving()
            asked = read(self.model, snapshot)
            prompts = [self._intake.read(one.prompt)._replace(continued=one.continued) for one in asked]
            limits = [self._intake.limit(one.prompt, one.params) for one in asked]
            handles: dict[int, RequestHandle] = {}
            try:
                for one, prompt, limit in zip(asked, prompts, limits, strict=True):
                    id, now = self._scheduler.state.next_id, self._clock()
                    when = {"arrival": now, "priority": one.priority, "timeout": one.timeout}
                    handles[one.id] = self._intake.handle(id, prompt, self._intake.settled(one.params), **when)
                    one.replay(handles[one.id])
                    self._again(handles[one.id], limit)
            except UserError:  # the queue is full, say: all or none
                for handle in handles.values():
                    self.abort(handle)
                raise
            return handles

    def status(self) -> EngineStats:
        """How things stand."""
        return self._tally.status(self._scheduler.state, self._loop.preempted, self._clients.acceptance)

    def _serving(self) -> None:
        if self.failure:
            raise EngineFailed(
                f"the engine has failed: {_named(self.failure)}; make a new one, and give its restore() this one's snapshot()"
            ) from self.failure

    def _again(self, handle: RequestHandle, limit: int) -> None:
        """A request whose answers may have begun goes on."""
        now, priority, params = handle.arrival, handle.priority, handle.params
        reuse, deadline = handle.scores is None or handle.scores.complete, now + handle.timeout
        if not any(answer.tokens or answer.finish for answer in handle.answers):  # so the samples may share the prompt again
            request = Request(handle.id, tuple(handle.prompt), limit, now, priority, deadline, params.n, reuse, params.seed)
            self._enter(request, handle, range(params.n), now)
            return
        for i, answer in enumerate(handle.answers):
            if not answer.finish:
                id, known, left = self._scheduler.state.next_id, tuple(handle.known(i)), limit - len(answer.tokens)
                seed = handle.samples[i].seed
                self._enter(Request(id, known, left, now, priority, deadline, reuse=reuse, seed=seed), handle, [i], now)

    def _enter(self, request: Request, handle: RequestHandle, samples: Sequence[int], now: float) -> None:
        self._scheduler.submit(request, now)  # first, for it may refuse
        self._clients.add(handle, zip(itertools.count(request.id), samples))
        self._loop.news()


def _named(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    return ": ".join(filter(None, (type(error).__name__, str(error).strip().partition("\n")[0])))
