"""Engines of the tiny model that share their compiled programs, and what every answer of theirs must be.

Pools begin full of NaN, so that whatever reads what was never written shows. Time is a virtual clock. Tokens of the vocabulary are single
ASCII characters, so that what a text must be is said in three lines.

Oracles: the dense float64 pass over one sequence (`tests.oracle`) and the slow definition of sampling (`sampling_oracle`) say of every
token whether it is the right one; a loop over the tokens says where the answer ends and what its text is.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.engine import Engine
from jaxserve.features import PLAIN, Features
from jaxserve.handle import Handle
from jaxserve.ladder import Ladder
from jaxserve.logprobs import TokenLogprob
from jaxserve.model import Model
from jaxserve.mover import Mover
from jaxserve.pool import Pool
from jaxserve.prepared import Prepared
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.check import check
from jaxserve.scheduling.outcome import End, Outcome
from jaxserve.scheduling.paged import Paged
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.scheduling.watch import Watch
from jaxserve.speculative.ngram import NGram
from models.errors import UserError
from models.layers import KV
from models.tokenizer import Tokenizer, byte_tokenizer
from tests.jaxserve import served, tiny
from tests.jaxserve.sampling_oracle import adjusted, drawn, log_softmax

EOS = (1, 6)
VOCAB = 96
CONTEXT, PAGE, WIDTH, UNITS = served.CONTEXT, served.PAGE, served.WIDTH, served.UNITS
LOGPROB = 1e-4  # in f32, of logits of order 1


class Unwritten(Model):
    """A model whose pools are full of NaN."""

    def empty_pool(self, units: int, unit: int, dtype: str, *, contiguous: bool = False) -> KV:
        pool = super().empty_pool(units, unit, dtype, contiguous=contiguous)
        return jax.tree.map(lambda a: jnp.full_like(a, float("nan")), pool)


@dataclasses.dataclass(frozen=True)
class Short(Pool):
    """A pool of which only the first `lent` units are lent, so that memory is short and the programs are those of the whole pool."""

    lent: int = 0

    @property
    def tokens(self) -> int:
        return self.lent * self.unit

    def memory(self) -> Any:
        return dataclasses.replace(Pool(self.lent, self.unit, self.dtype, self.kind, self.prefix)).memory()


@dataclasses.dataclass(frozen=True)
class Kit:
    """What is compiled together."""

    ladder: Ladder
    features: Features = PLAIN
    kind: Any = "paged"
    units: int = UNITS

    def pool(self, *, prefix: bool = False, lent: int | None = None) -> Pool:
        whole = Pool(self.units, self.ladder.page, kind=self.kind, prefix=prefix)
        return whole if lent is None else Short(whole.units, whole.unit, kind=self.kind, prefix=prefix, lent=lent)


ALL_FEATURES = Features(history=CONTEXT + 8, biases=16, logprobs=2, prompt_logprobs=2)
PLAIN_KIT = Kit(served.LADDER)
ALL_KIT = Kit(Ladder((4,), (WIDTH,), (2, 8), PAGE, mixed=(4,), drafts=2, steps=3), ALL_FEATURES)
SLOTS_KIT = Kit(Ladder((4,), (1,), (2, 8), CONTEXT), kind="contiguous", units=6)
QUICK = (PLAIN_KIT, ALL_KIT, SLOTS_KIT)


@functools.cache
def model() -> Model:
    """The plain tiny model, behind a tokenizer whose end tokens are in its vocabulary."""
    one = served.served().model
    tokenizer = Tokenizer(byte_tokenizer(512).backend, bos_token=None, eos_tokens=EOS, origin="test")
    return Unwritten(**{field.name: getattr(one, field.name) for field in dataclasses.fields(Model)} | {"tokenizer": tokenizer})


@functools.cache
def prepared(kit: Kit) -> Prepared:
    """Compiled once for all tests: compiling is what costs."""
    pool = kit.pool()
    kv = model().empty_pool(pool.units, pool.unit, pool.dtype, contiguous=kit.kind == "contiguous")
    if kit == PLAIN_KIT:  # other tests have these programs too
        return Prepared(model(), pool, kit.ladder, kit.features, served.served().programs, Mover(kv, 4, workers=True))
    return Prepared.of(model(), pool, kit.ladder, kit.features, kv, workers=2)


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


class Books(Watch):
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

    def folded(self, before: State, plan: Plan, outcome: Outcome, after: State, ends: tuple[End, ...], now: float) -> None:
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
    books: Watch | None = None,
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
    assert not (clients.samples or clients.drafts or clients._lookups)
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


def ending(params: SamplingParams, tokens: Sequence[int]) -> tuple[int, str | None, str]:
    """(tokens of an answer that begins so, why it ends there or None, its text), from the definition, character by character."""
    text, stops = "", params.stop_set(EOS)
    limit = params.max_tokens if params.max_tokens is not None else math.inf
    for count, token in enumerate(tokens, start=1):
        armed = count > params.min_tokens
        if armed and token in stops:
            return count, "stop", text + chr(token) * params.include_stop
        text += chr(token)
        if armed and (found := [stop for stop in params.stop if text.endswith(stop)]):
            return count, "stop", text if params.include_stop else text[: len(text) - max(map(len, found))]
        if count >= limit:
            return count, "length", text
    return len(tokens), None, text


def proved(handle: Handle, *, known: dict[Any, Any] | None = None) -> None:
    """Every token of all its answers is right, and ends where it must; with `known` also equal to what the same request drew before.

    An answer that was aborted is right as far as it goes.
    """
    for i, answer in enumerate(handle.answers):
        params = handle.params.of_sample(i)
        assert answer.finish is not None, handle
        cut = answer.finish.reason in ("abort", "timeout")
        limited = dataclasses.replace(params, max_tokens=handle_limit(handle))
        count, reason, text = ending(limited, answer.tokens)
        assert count == len(answer.tokens), (handle, i, "goes on after its end")
        assert (reason is None) if cut else (reason == answer.finish.reason), (handle, i, reason, answer.finish)
        assert answer.text == text, (handle, i, answer.text, text)
        right(handle.prompt, params, answer.tokens, handle.logprobs[i])
        if known is not None:
            key = tuple(handle.prompt), dataclasses.replace(limited, logprobs=None, prompt_logprobs=None)
            before = known.get(key, [])
            common = min(len(before), len(answer.tokens))
            assert answer.tokens[:common] == before[:common], (handle, i, answer.tokens, before)
            known[key] = max(before, list(answer.tokens), key=len)
    scored(handle)


def handle_limit(handle: Handle) -> int:
    room = CONTEXT - len(handle.prompt) + 1
    return room if handle.params.max_tokens is None else handle.params.max_tokens


def right(prompt: Sequence[int], params: SamplingParams, answer: Sequence[int], logprobs: Sequence[TokenLogprob]) -> None:
    """Each token is what the slow definition draws after those before it."""
    if not answer:
        return
    logits = tiny.logits("llama", (*prompt, *answer))[len(prompt) - 1 :]
    stops = params.stop_set(EOS)
    for i, token in enumerate(answer):
        possible = drawn(adjusted(logits[i], params, prompt, answer[:i], stops), params, len(prompt) + i)
        assert token in possible, (i, token, possible, params)
    assert len(logprobs) == (0 if params.logprobs is None else len(answer))
    for i, (found, token) in enumerate(zip(logprobs, answer, strict=False)):
        same_logprob(found, token, params.logprobs or 0, log_softmax(logits[i]))


def scored(handle: Handle) -> None:
    """The prompt's log-probabilities, if all of it was run."""
    if handle.params.prompt_logprobs is None:
        assert handle.scores is None and handle.prompt_logprobs is None
        return
    if handle.prompt_logprobs is None:
        assert not any(answer.tokens for answer in handle.answers)
        return
    assert len(handle.prompt_logprobs) == len(handle.prompt) and handle.prompt_logprobs[0] is None
    exact = tiny.logits("llama", tuple(handle.prompt))
    for found, token, logits in zip(handle.prompt_logprobs[1:], handle.prompt[1:], exact, strict=False):
        assert found is not None
        same_logprob(found, token, handle.params.prompt_logprobs, log_softmax(logits))


def same_logprob(found: TokenLogprob, token: int, top: int, exact: np.ndarray) -> None:
    assert found.token == token and found.logprob is not None
    assert abs(found.logprob - exact[token]) < LOGPROB
    best = sorted(exact, reverse=True)[:top]
    assert len(found.top) == top
    for (other, value), expected in zip(found.top, best, strict=True):
        assert value is not None and abs(value - expected) < LOGPROB and abs(exact[other] - expected) < LOGPROB


def greedy_answer(prompt: Sequence[int], count: int) -> list[int]:
    """What the dense oracle says, token by token."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(tiny.logits("llama", tuple(tokens))[-1].argmax()))
    return tokens[len(prompt) :]


def numbered(prompt: int, size: int) -> list[int]:
    """A prompt."""
    return list(tiny.prompt(prompt, size))


def pieces_by_sample(pieces: Iterator[Any]) -> dict[tuple[int, int], tuple[list[int], str]]:
    """(tokens, text) that pieces add up to, by handle and sample."""
    sums: dict[tuple[int, int], tuple[list[int], str]] = {}
    for piece in pieces:
        tokens, text = sums.get((piece.handle.id, piece.sample), ([], ""))
        sums[piece.handle.id, piece.sample] = (tokens + list(piece.tokens), text + piece.text)
    return sums
