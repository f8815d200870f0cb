"""Slots and bytes of static batches. Oracles: facts.md section 6, and a loop over steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.concurrency.static_batch import Slots, StaticBatch
from models.errors import UserError


@pytest.mark.parametrize(
    ("lengths", "slots", "padded", "share"),
    [((20, 50, 80, 200), (800, 350), 450, 0.5625), ((30, 60, 90, 120), (480, 300), 180, 0.375)],
)
def test_the_facts(lengths: tuple[int, ...], slots: tuple[int, int], padded: int, share: float):
    found = StaticBatch(lengths).slots
    assert found == Slots(*slots) and (found.padded, found.padded_share) == (padded, share)


rows = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=6)


@given(rows=rows)
def test_step_by_step(rows: list[tuple[int, int]]):
    """Each step reads the weights once and the KV of rows that still run; the KV of rows that have ended lies about."""
    answers, prompts = [a for _, a in rows], [p for p, _ in rows]
    weights, token = 1000.0, 8.0
    read = held = steps = useful = 0
    for step in range(1, max(answers) + 1):
        steps += 1
        useful += sum(a >= step for a in answers)
        read += sum(p + step for p, a in rows if a >= step)
        held += sum(p + a for p, a in rows if a < step)
    batch = StaticBatch(tuple(answers))
    found = batch.reads(weights, token, prompts)
    assert (batch.steps, batch.slots.useful, batch.slots.all) == (steps, useful, steps * len(rows))
    assert found.weights == steps * weights and found.kv == pytest.approx(token * read)
    assert found.held == pytest.approx(token * held / steps)


def test_padded_slots_read_nothing():
    """With the three short rows gone there are 450 places less to pad, and the weights are read as often."""
    four, one = StaticBatch((20, 50, 80, 200)), StaticBatch((200,))
    assert four.reads(1e9, 1.0, (1, 1, 1, 1)).weights == one.reads(1e9, 1.0, (1,)).weights


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StaticBatch(()), "0 answers; give at least 1"),
        (lambda: StaticBatch((3, 0)), "an answer has 0 tokens"),
        (lambda: StaticBatch((3,)).reads(1.0, 1.0, ()), "0 prompts for 1 answers"),
        (lambda: StaticBatch((3,)).reads(0.0, 1.0, (1,)), "bytes of weights is 0"),
        (lambda: StaticBatch((3,)).reads(1.0, 1.0, (0,)), "prompt tokens is 0"),
    ],
)
def test_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
