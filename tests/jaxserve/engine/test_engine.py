"""The engine as its users see it: requests in, pieces out.

Oracles: the dense float64 pass (`proofs.greedy_answer`, `proofs.proved`), and counts by hand.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import weakref
from typing import Any

import pytest
from flax import nnx

from jaxserve.engine.engine import Engine
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.step import Step
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.static import Static
from models.errors import UserError
from models.forward import serving
from models.layers import stack_layers
from tests.jaxserve.engines import LINK, PLAIN_KIT, SLOTS_KIT, Books, Clock, engine, model, nothing_left, numbered, run
from tests.jaxserve.proofs import greedy_answer, pieces_by_sample, proved

SIX = SamplingParams(max_tokens=6, ignore_eos=True)


def test_run_gives_all_that_comes_piece_by_piece():
    one = engine(Continuous(Limits(rows=3)))
    handles = [one.submit(numbered(i, 4 + i), SamplingParams(max_tokens=3 + i, ignore_eos=True, n=1 + i % 2)) for i in range(4)]
    sums = pieces_by_sample(one.run())
    assert len(sums) == sum(handle.params.n for handle in handles)
    for handle in handles:
        for i, answer in enumerate(handle.answers):
            assert sums[handle.id, i] == (answer.tokens, answer.text)
            times = handle.token_times[i]
            assert len(times) == len(answer.tokens) and times == sorted(times) and times[0] > handle.arrival
        assert handle.finished and repr(handle).startswith(f"Handle({handle.id}: {len(handle.prompt)} prompt tokens; length")
    nothing_left(one)


def test_several_streams_in_turn():
    """The stream of one moves all of them on; each gets all of its own."""
    one = engine(Continuous(Limits(rows=2)))
    handles = [one.submit(numbered(i, 5), SIX) for i in range(3)]
    streams, got = [one.stream(handle) for handle in handles], [list[Any]() for _ in handles]
    while any(not handle.finished for handle in handles):
        for stream, mine in zip(streams, got, strict=True):
            if (piece := next(stream, None)) is not None:
                mine.append(piece)
    for stream, mine, handle in zip(streams, got, handles, strict=True):
        mine += list(stream)
        tokens = [token for piece in mine for token in piece.tokens]
        assert tokens == handle.answers[0].tokens == greedy_answer(handle.prompt, 6)
        assert "".join(piece.text for piece in mine) == handle.answers[0].text
        assert all(piece.handle is handle and piece.sample == 0 for piece in mine)
        assert [piece.tokens for piece in one.stream(handle)] == [tuple(tokens)]  # again, now that all is there
    nothing_left(one)


def test_a_stream_of_another_engines_request_is_refused():
    first, second = engine(Continuous(Limits(rows=2))), engine(Continuous(Limits(rows=2)))
    handle = first.submit(numbered(0, 5), SIX)
    with pytest.raises(UserError, match=r"Handle\(0: 5 prompt tokens; 0 tokens\) is not served by this engine"):
        next(second.stream(handle))
    assert len([piece for piece in first.stream(handle)]) == 6


def test_samples_are_what_requests_of_their_own_draw():
    """They share a prompt whose last page is not full, so they part with a copy; sent to another worker, each gets pages of its own."""
    params = SamplingParams(1.3, seed=11, max_tokens=7, n=3, ignore_eos=True)
    alone = []
    for i in range(3):
        one = engine(Continuous(Limits(rows=1)))
        handle = one.submit(numbered(1, 6), params.of_sample(i))
        run(one)
        alone.append(handle.answers[0].tokens)
    assert len(set(map(tuple, alone))) == 3
    for policy, kit, workers in (
        (Static(Limits(rows=4)), PLAIN_KIT, 1),
        (Continuous(Limits(rows=4, ahead=1)), PLAIN_KIT, 1),
        (Chunked(Limits(rows=4), 4), SLOTS_KIT, 1),
        (Disaggregated(LINK, Limits(rows=4)), PLAIN_KIT, 2),
        (Disaggregated(LINK, Limits(rows=4)), SLOTS_KIT, 2),
    ):
        books = Books()
        one = engine(policy, kit, workers=workers, books=books)
        handle = one.submit(numbered(1, 6), params)
        run(one)
        assert [answer.tokens for answer in handle.answers] == alone, policy
        assert books.forked == 1 and any(plan.copies for plan in books.plans) == (workers == 1 or kit is SLOTS_KIT)
        nothing_left(one)


def test_priority_goes_first():
    one = engine(Continuous(Limits(rows=1)))
    late, early = one.submit(numbered(0, 5), SIX, priority=2), one.submit(numbered(1, 5), SIX, priority=1)
    run(one)
    assert early.token_times[0][-1] < late.token_times[0][0]


def test_who_waits_too_long_is_told_so():
    clock = Clock()
    one = engine(Continuous(Limits(rows=1)), clock=clock)
    first = one.submit(numbered(0, 5), SIX)
    second = one.submit(numbered(1, 5), SamplingParams(max_tokens=6, n=1), timeout=2.0)
    one.step()
    clock.now += 3
    pieces = list(one.run())
    assert [(piece.tokens, piece.text) for piece in pieces if piece.handle is second] == [((), "")]
    assert second.answers[0].finish == ("timeout", None) and first.answers[0].tokens == greedy_answer(first.prompt, 6)
    nothing_left(one)


def test_status_and_idleness_by_hand():
    one = engine(Continuous(Limits(rows=2)))
    assert one.idle and one.status()[:6] == (0, 0, 0, 44, 0, 0)
    for i in range(3):
        one.submit(numbered(i, 5), SIX)
    assert not one.idle and one.status()[:4] == (0, 3, 0, 44)
    one.step()
    status = one.status()
    assert (status.running, status.waiting, status.pages, status.steps) == (2, 1, 4, 1)  # 5 tokens are two pages
    assert (status.prefill, status.drawn, status.preempted, status.cached) == (10, 2, 0, 0)
    run(one)
    assert one.idle and one.status()[:5] == (0, 0, 0, 44, 12)
    assert one.status().drawn == 18 and one.context == 40


def test_an_engine_that_nobody_has_gives_its_memory_back_at_once():
    """A pool is most of a machine's memory: the next one must not have to wait for a garbage collector."""
    one = engine(Continuous(Limits(rows=2)))
    handle = one.submit(numbered(0, 5), SIX)
    run(one)
    pool = weakref.ref(one._loop._executors[0])
    gc.disable()
    try:
        del one
        assert pool() is None
    finally:
        gc.enable()
    assert len(handle.answers[0].tokens) == 6  # what it brought stays


@pytest.mark.slow
def test_layers_that_are_scanned_serve_alike():
    """All layers in one array, as on a TPU: pages are copied and sent in each of them."""
    plain = model()
    graph, weights = stack_layers(plain.config, dict(nnx.to_flat_state(plain.serving.weights)))
    arrays = serving(plain.config, weights, plain.context)
    scanned = dataclasses.replace(plain, step=Step(graph, plain.config, stacked=True), serving=arrays)
    policy, ladder = Disaggregated(LINK, Limits(rows=4)), Buckets((4,), (10,), (2, 8), 4)
    one = Engine(scanned, policy, PLAIN_KIT.pool(prefix=True), ladder, workers=2)
    both = Engine(scanned, Continuous(Limits(rows=4)), PLAIN_KIT.pool(), ladder, prepared=one.prepared)
    for each in (one, both):
        handles = [each.submit(numbered(i % 3, 6 + i), SamplingParams(0.6, seed=i, max_tokens=8, n=2)) for i in range(6)]
        run(each)
        for handle in handles:
            proved(handle)
        nothing_left(each)


def test_pieces_of_time_are_finite():
    one = engine(Continuous(Limits(rows=2)))
    one.submit(numbered(0, 5), SIX)
    run(one)
    assert all(math.isfinite(record.host) and math.isfinite(record.measured) for record in one.records)
