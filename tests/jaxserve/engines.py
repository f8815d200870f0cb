"""Engines of the tiny model that share their compiled programs.

Pools begin full of NaN, so that whatever reads what was never written shows. Time is a virtual clock. Tokens of the vocabulary are single
ASCII characters, so that what a text must be is said in three lines. What every answer of theirs must be is in `proofs`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxserve.engine.compiled_programs import CompiledPrograms, KVCopier
from jaxserve.engine.engine import Engine
from jaxserve.engine.model import Model
from jaxserve.kv.layout import KVLayout
from jaxserve.kv.paged import Paged
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import PLAIN, Features
from jaxserve.scheduling.check import check
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.scheduling.transfer import Link
from jaxserve.speculative.ngram import NGram
from models.errors import UserError
from models.layers import KV
from models.text.tokenizer import Tokenizer, byte_tokenizer
from tests.jaxserve import served, tiny

EOS = (1, 6)
VOCAB = 96
CONTEXT, PAGE, WIDTH, UNITS = served.CONTEXT, served.PAGE, served.WIDTH, served.UNITS
LINK = Link(token_bytes=100, bandwidth=1e5, latency=0.002)  # between workers
ROWS = Limits(rows=4)


class Unwritten(Model):
    """A model whose pools are full of NaN."""

    def empty_pool(self, units: int, unit: int, dtype: str, *, contiguous: bool = False) -> KV:
        pool = super().empty_pool(units, unit, dtype, contiguous=contiguous)
        return jax.tree.map(lambda a: jnp.full_like(a, float("nan")), pool)


@dataclasses.dataclass(frozen=True)
class Short(KVLayout):
    """A pool of which only the first `lent` units are lent, so that memory is short and the programs are those of the whole pool."""

    lent: int = 0

    @property
    def tokens(self) -> int:
        return self.lent * self.unit

    def memory(self) -> Any:
        return dataclasses.replace(KVLayout(self.lent, self.unit, self.dtype, self.kind, self.prefix)).memory()


@dataclasses.dataclass(frozen=True)
class Kit:
    """What is compiled together."""

    ladder: Buckets
    features: Features = PLAIN
    kind: Any = "paged"
    units: int = UNITS

    def pool(self, *, prefix: bool = False, lent: int | None = None) -> KVLayout:
        whole = KVLayout(self.units, self.ladder.page, kind=self.kind, prefix=prefix)
        return whole if lent is None else Short(whole.units, whole.unit, kind=self.kind, prefix=prefix, lent=lent)


ALL_FEATURES = Features(history=CONTEXT + 8, biases=16, logprobs=2, prompt_logprobs=2)
PLAIN_KIT = Kit(served.LADDER)
ALL_KIT = Kit(Buckets((4,), (WIDTH,), (2, 8), PAGE, mixed=(4,), drafts=2, steps=3), ALL_FEATURES)
SLOTS_KIT = Kit(Buckets((4,), (1,), (2, 8), CONTEXT), kind="contiguous", units=6)
QUICK = (PLAIN_KIT, ALL_KIT, SLOTS_KIT)


@functools.cache
def model() -> Model:
    """The plain tiny model, behind a tokenizer whose end tokens are in its vocabulary."""
    one = served.served().model
    tokenizer = Tokenizer(byte_tokenizer(512).backend, bos_token=None, eos_tokens=EOS, origin="test")
    return Unwritten(**{field.name: getattr(one, field.name) for field in dataclasses.fields(Model)} | {"tokenizer": tokenizer})


@functools.cache
def prepared(kit: Kit) -> CompiledPrograms:
    """Compiled once for all tests: compiling is what costs."""
    pool = kit.pool()
    kv = model().empty_pool(pool.units, pool.unit, pool.dtype, contiguous=kit.kind == "contiguous")
    if kit == PLAIN_KIT:  # other tests have these programs too
        return CompiledPrograms(
            model(), pool, kit.ladder, kit.features, served.served().programs, KVCopier(kv, 4, workers=True)
        )
    return CompiledPrograms.of(model(), pool, kit.ladder, kit.features, kv, workers=2)


class Clock:
    """A virtual clock: every look at it takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0 <= seconds < math.inf
        self.now += seconds


class Books(Observer):
    """Law 2, after all that happens to a scheduler; and what was planned."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.preempted = self.forked = self.hand_offs = 0
        self.state: State | None = None

    def started(self, policy: Policy, state: State) -> None:
        self._see(state)

    def submitted(self, state: State, request: Request, refused: UserError | None, now: float) -> None:
        self._see(state)

    def cancelled(self, state: State, id: int, now: float) -> None:
        self._see(state)

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        self._see(after)
        if not plan.idle:
            self.plans.append(plan)
            self.preempted += len(plan.preempted)
            self.forked += len(plan.forking)
            self.hand_offs += len(plan.hand_offs)

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self._see(after)

    def _see(self, state: State) -> None:
        check(state)
        self.state = state

    def all_free(self) -> None:
        """All memory is free, or holds a known prefix that nobody uses."""
        assert self.state is not None and self.state.idle
        for worker in self.state.workers:
            memory = worker.memory
            assert memory.in_use == 0 and not worker.rows and not worker.flying
            if isinstance(memory, Paged):
                assert memory.pages.free + (memory.prefix.idle if memory.prefix else 0) == memory.pages.total
            else:
                assert len(memory.free) == memory.total  # type: ignore[attr-defined]


def engine(
    policy: Policy,
    kit: Kit = PLAIN_KIT,
    *,
    prefix: bool = False,
    lent: int | None = None,
    drafter: NGram | None = None,
    workers: int = 1,
    books: Observer | None = None,
    clock: Clock | None = None,
    **more: Any,
) -> Engine:
    """An engine that compiles nothing."""
    clock = clock or Clock()
    return Engine(
        model(),
        policy,
        kit.pool(prefix=prefix, lent=lent),
        kit.ladder,
        features=kit.features,
        drafter=drafter,
        workers=workers,
        log=books or Books(),
        prepared=prepared(kit),
        clock=clock,
        sleep=clock.sleep,
        **more,
    )


def run(engine: Engine, most: int = 5000) -> int:
    """To the end; how many turns it took."""
    for turn in range(most):
        if engine.idle:
            return turn
        engine.step()
        engine.wait()
    raise AssertionError(f"{most} turns and no end: {engine.status()}")


def nothing_left(engine: Engine) -> None:
    """An idle engine keeps nothing of the requests that it has served."""
    assert engine.idle and not engine.step()
    clients, loop = engine._clients, engine._loop
    assert not (clients.samples or clients.drafts or clients._lookups or clients._rows)
    assert not (len(loop._seats) or loop._planned or loop._flying)
    status = engine.status()
    assert (status.running, status.waiting, status.pages) == (0, 0, 0)
    watch = engine._scheduler._watch
    if isinstance(watch, Books):
        watch.all_free()


def seated_right(engine: Engine) -> None:
    """What steps are packed of is what the clients have: every row's tokens, in their places."""
    seats = engine._loop._seats
    for id, sample in engine._clients.samples.items():
        if id in seats:
            known = sample.handle.known(sample.index)
            (seat,) = seats.of([id])
            assert seats.tokens[seat, : len(known)].tolist() == known, (id, known)


def numbered(prompt: int, size: int) -> list[int]:
    """A prompt."""
    return list(tiny.prompt(prompt, size))
