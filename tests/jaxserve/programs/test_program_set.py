"""The closed set of programs: compiled in parallel, listed with their cost, never compiled again (law 3).

Oracles: sizes of arrays counted by hand, JAX's own compile events, and the dense float64 forward pass of `tests.oracle`.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.programs.bucket import Bucket
from jaxserve.programs.features import PLAIN
from jaxserve.programs.program_set import DonatedPoolError, Programs, blank, compile_programs
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from models.kv_cache import PagedKV
from models.layers import KV
from tests.jaxserve.served import LADDER, MIXED, PAGE, UNITS, WIDTH, argmaxes, row, served
from tests.jaxserve.tiny import prompt


@contextlib.contextmanager
def compile_events() -> Iterator[list[str]]:
    """Names of all tracings, lowerings and compilations of this process while the block runs."""
    events: list[str] = []

    def listen(event: str, duration_secs: float, **more: str | int) -> None:
        if "/compile/" in event:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_each_program_is_listed_with_what_it_takes():
    """Arguments are the weights, the rotary table, the pool and the work; the pool comes back in place."""
    s = served()
    assert len(s.programs) == 5 and [p.bucket for p in s.programs] == [*LADDER.buckets(), MIXED]
    pool = sum(a.nbytes for a in jax.tree.leaves(s.pool()))
    assert pool == UNITS * PAGE * s.model.config.kv_bytes_per_token(4)
    for program in s.programs:
        work = sum(np.asarray(a).nbytes for a in jax.tree.leaves(blank(program.bucket, UNITS)))
        fixed = sum(a.nbytes for a in jax.tree.leaves(s.model.serving))
        assert program.totals.argument_bytes == pytest.approx(fixed + pool + work, abs=1024)  # alignment
        assert program.totals.alias_bytes == pool
        assert program.totals.temp_bytes is not None and program.totals.temp_bytes > 0
        assert program.seconds > 0 and math.isfinite(program.seconds)
        assert (program.totals.flops or 0) > 0 and program.loops > 0
    by_rows = {p.bucket.tokens: p.totals.flops or 0 for p in s.programs}
    assert by_rows[1] < by_rows[2] < by_rows[4] < by_rows[10] < by_rows[16]


def test_blank_work_is_all_padding():
    decode, chunk = blank(MIXED, UNITS)
    assert decode.segment.tokens.shape == (2, 1) and chunk.segment.tokens.shape == (1, 8)
    for work in (decode, chunk):
        assert (work.segment.count == 0).all() and (work.segment.table == UNITS).all()
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(work))


class FakeStep:
    """Stands in for the model: `meanwhile` runs when it is traced, with the number of rows."""

    features = PLAIN

    def __init__(self, meanwhile: Any):
        self.meanwhile = meanwhile

    def __call__(self, serving: Any, kv: Any, work: Any) -> Any:
        self.meanwhile(work[0].segment.rows)
        return kv, ()


def compiled(meanwhile: Any, sizes: tuple[int, ...], **options: Any) -> Programs:
    pool = PagedKV.zeros(served().model.config, 2, PAGE, jnp.float32)
    buckets = [Bucket(((rows, 1),), 1) for rows in sizes]
    return compile_programs(FakeStep(meanwhile), [], pool, buckets, **options)  # type: ignore[arg-type]


def test_programs_are_compiled_at_the_same_time():
    """Each tracing waits for the other: one after the other, the barrier breaks."""
    barrier = threading.Barrier(2, timeout=60)
    assert len(compiled(lambda rows: barrier.wait(), (1, 2), threads=2)) == 2


def test_large_ones_first_and_each_reported_once_from_the_callers_thread():
    order: list[int] = []
    reported: list[tuple[int, threading.Thread]] = []
    programs = compiled(
        order.append,
        (1, 2, 4, 2),
        threads=1,
        done=lambda program: reported.append((program.bucket.tokens, threading.current_thread())),
    )
    assert order == [4, 2, 1] and [p.bucket.tokens for p in programs] == [1, 2, 4]
    assert sorted(rows for rows, _ in reported) == [1, 2, 4]
    assert {thread for _, thread in reported} == {threading.current_thread()}


def test_each_program_is_traced_once_however_often_it_runs():
    """A fourth tracing of three programs would raise."""

    class Traced(FakeStep):
        @staticmethod
        @chex.assert_max_traces(n=3)
        def body(kv: Any, work: Any) -> Any:
            return kv, ()

        def __call__(self, serving: Any, kv: Any, work: Any) -> Any:
            return self.body(kv, work)

    pool: KV = PagedKV.zeros(served().model.config, 2, PAGE, jnp.float32)
    buckets = [Bucket(((rows, 1),), 1) for rows in (1, 2, 4)]
    programs = compile_programs(Traced(None), [], pool, buckets)  # type: ignore[arg-type]
    for _ in range(4):
        for program in programs:
            pool, _ = program(pool, blank(program.bucket, 2))
    with pytest.raises(AssertionError, match="traced > 3 times"):
        compile_programs(Traced(None), [], pool, [Bucket(((8, 1),), 1)])  # type: ignore[arg-type]


def test_a_failure_does_not_wait_for_what_still_compiles():
    """So that Ctrl-C and an error end at once where a compilation takes minutes."""
    release, raised, started = threading.Event(), threading.Event(), threading.Event()
    before = set(threading.enumerate())

    def trace(rows: int) -> None:
        if rows == 1:
            assert started.wait(60)
            raise ValueError("one is broken")
        started.set()
        release.wait(60)
        raise ValueError("nobody asks any more")  # and nothing compiles while other tests count

    def compile_both() -> None:
        with pytest.raises(ValueError, match="one is broken"):
            compiled(trace, (1, 2), threads=2)
        raised.set()

    thread = threading.Thread(target=compile_both)
    thread.start()
    try:
        assert raised.wait(30), "compile_programs waits for the other program"
    finally:
        release.set()
        thread.join(60)
        for other in set(threading.enumerate()) - before:  # the one that still traced, whose end is an event too
            other.join(60)


def test_a_bucket_that_was_not_compiled_is_refused():
    with (
        compile_events() as events,
        pytest.raises(UserError, match=r"no program for decode 3 \(10 pages wide\); compiled are decode 1"),
    ):
        served().programs[Bucket(((3, 1),), WIDTH)]
    assert not events


def test_a_donated_pool_explains_itself():
    s = served()
    program, old = s.programs[LADDER.decode(1, 1)], s.pool()
    new, _ = program(old, blank(program.bucket, UNITS))
    with pytest.raises(DonatedPoolError, match=r"already given to a step.*kv, outputs = program\(kv, work\)"):
        program(old, blank(program.bucket, UNITS))
    program(new, blank(program.bucket, UNITS))  # the pool that was returned goes on


class Mix:
    """Four sequences at different places of their lives, stepped in random company; a new one follows each that has ended."""

    def __init__(self, seed: int):
        self.draw = np.random.default_rng(seed)
        self.pool: KV = served().pool()
        pages = self.draw.permutation(UNITS - 4).reshape(4, WIDTH).astype(np.int32)
        self.ended: list[Any] = []
        self.rows = [self.fresh(i, pages[i]) for i in range(4)]
        self.kinds: dict[str, int] = {}

    def fresh(self, seed: int, pages: np.ndarray) -> Any:
        size = int(self.draw.integers(1, 20))
        return row(prompt(seed, size), int(self.draw.integers(1, WIDTH * PAGE - size + 1)), pages=pages)

    def some(self, rows: list[Any], most: int) -> list[Any]:
        count = int(self.draw.integers(1, min(most, len(rows)) + 1))
        return [rows[i] for i in self.draw.permutation(len(rows))[:count]]

    def step(self) -> None:
        waiting = [r for r in self.rows if r.cached < len(r.prompt)]
        running = [r for r in self.rows if r.cached >= len(r.prompt)]
        kinds = ["prefill"] * bool(waiting) + ["decode"] * bool(running) + ["mixed"] * bool(waiting and running)
        kind = self.draw.choice(kinds)
        if kind == "mixed":
            bucket, parts = MIXED, [self.some(running, 2), self.some(waiting, 1)]
        elif kind == "prefill":
            bucket, parts = LADDER.prefill(1), [self.some(waiting, 2)]
        else:
            parts = [self.some(running, 4)]
            bucket = LADDER.decode(len(parts[0]), 1)
        self.kinds[bucket.name] = self.kinds.get(bucket.name, 0) + 1
        work = blank(bucket, UNITS)
        counts = []
        for part, (segment, sampling) in zip(parts, [(w.segment, w.sampling) for w in work], strict=True):
            for i, r in enumerate(part):
                most = min(len(r.pending), segment.query)
                count = int(self.draw.integers(1, most + 1))
                segment.tokens[i, :count], segment.start[i], segment.count[i] = r.pending[:count], r.cached, count
                segment.table[i], sampling.seed[i] = r.pages, r.sampling.seed or 0
                counts.append((r, count))
        self.pool, outputs = served().programs[bucket](self.pool, work)
        drawn = [np.asarray(output.tokens)[i, 0] for part, output in zip(parts, outputs, strict=True) for i in range(len(part))]
        for (r, count), token in zip(counts, drawn, strict=True):
            r.cached += count
            if r.cached >= len(r.prompt):
                r.output.append(int(token))
            if r.finished:
                self.rows[self.rows.index(r)] = self.fresh(len(self.ended) + 4, r.pages)
                self.ended.append(r)


def test_two_hundred_mixed_steps_compile_nothing_and_are_right():
    """Laws 3 and 1: 0 compilations, and every token is the one that the dense oracle finds likeliest."""
    mix = Mix(0)
    with compile_events() as events:
        for _ in range(200):
            mix.step()
    assert not events
    assert len(mix.kinds) == 5 and min(mix.kinds.values()) > 5, mix.kinds  # all programs took part
    assert len(mix.ended) > 8
    for r in mix.ended:
        assert r.output == argmaxes([*r.prompt, *r.output[:-1]])[len(r.prompt) - 1 :]


def test_a_whole_generation_compiles_nothing():
    s, pool = served(), served().pool()
    rows = [row(prompt(i, 3 + i), 5 + i, SamplingParams(0.7 * i, top_k=3), first=10 * i) for i in range(4)]
    with compile_events() as events:
        s.run(rows, pool)
    assert not events and all(r.finished for r in rows)


def test_the_events_see_a_compilation():
    with compile_events() as events:
        jax.jit(lambda x: x * 3 + len(events))(np.arange(7))
    assert any("backend_compile" in event for event in events)
