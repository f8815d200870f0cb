"""Which drafts stand, and the tally of them.

Oracles: the same draws one at a time without speculation; the distribution that is drawn from; figures by hand; and a simulation of
the assumption behind the formula.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.programs.sampling import RowSampling, sample
from jaxserve.speculative.ngram import Acceptance, accepted


@pytest.mark.parametrize(
    ("drafts", "drawn", "expected"),
    [
        ((5, 6, 7), (5, 6, 7, 8), (5, 6, 7, 8)),
        ((5, 6, 7), (5, 9, 7, 8), (5, 9)),  # what follows a wrong draft means nothing, though it looks right
        ((5, 6, 7), (4, 6, 7, 8), (4,)),
        ((), (3,), (3,)),
        ((), (3, 1, 2), (3,)),  # a row with fewer drafts than the program verifies
        ((5,), (5, 1, 5), (5, 1)),
    ],
)
def test_accepted_by_hand(drafts: tuple[int, ...], drawn: tuple[int, ...], expected: tuple[int, ...]):
    assert accepted(drafts, drawn) == expected


def test_a_draft_that_nothing_was_drawn_after():
    with pytest.raises(ValueError, match="2 drafts were verified and 2 tokens drawn"):
        accepted((1, 2), (1, 2))


def toy(seed: int, text: Sequence[int]) -> int:
    """A model of four words that hangs on everything before, drawn by a key of (seed, position) alone."""
    odds = random.Random(str(text)).choices(range(1, 9), k=4)
    return random.Random(seed * 1_000_003 + len(text)).choices(range(4), weights=odds)[0]


@given(st.integers(0, 2**31), st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=12, max_size=12), st.booleans())
@settings(max_examples=300, deadline=None)
def test_the_text_is_that_without_speculation(seed: int, guesses: list[list[int]], right: bool):
    """Whatever is guessed: at random, or with the beginning right."""
    alone: list[int] = []
    while len(alone) < 12 * 6:
        alone.append(toy(seed, alone))
    text: list[int] = []
    tally = Acceptance()
    for guess in guesses:
        drafts = (alone[len(text) :][: len(guess) // 2] + guess)[: len(guess)] if right else guess
        drawn = [toy(seed, text + drafts[:i]) for i in range(len(drafts) + 1)]
        gained = accepted(drafts, drawn)
        tally = tally.verified(len(drafts), len(gained))
        text += gained
        assert text == alone[: len(text)]
    assert tally.offered == sum(map(len, guesses)) and tally.steps == sum(map(bool, guesses))
    assert tally.tokens == tally.accepted + tally.steps


SEEDS = 8_000


def test_the_distribution_of_drawn_rows_is_preserved():
    """Two tokens of 8,000 rows that verify one draft: pairs as likely as the model says (chi-square, 15 degrees of freedom).

    The draft is a bad one for half of the rows, and what is guessed leans on nothing that was drawn.
    """
    first = np.array([0.1, 0.2, 0.3, 0.4])
    second = np.array([[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.05, 0.05, 0.1, 0.8], [0.4, 0.3, 0.2, 0.1]])
    ones, zeros = np.ones(SEEDS, np.float32), np.zeros(SEEDS, np.float32)
    rows = RowSampling(ones, np.zeros(SEEDS, np.int32), ones, zeros, np.arange(SEEDS, dtype=np.uint32))

    drawing = jax.jit(sample)

    def draw(odds: np.ndarray, position: int) -> np.ndarray:
        return np.asarray(drawing(jnp.log(jnp.asarray(odds, jnp.float32)), rows, jnp.full(SEEDS, position)))

    drafts = np.where(np.arange(SEEDS) % 2, 3, 0)
    one = draw(np.broadcast_to(first, (SEEDS, 4)), 7)
    after_draft = draw(second[drafts], 8)
    after_one = draw(second[one], 8)  # the next step of a row whose draft was refused
    pairs: Counter[tuple[int, int]] = Counter()
    tally = Acceptance()
    for i in range(SEEDS):
        gained = accepted((int(drafts[i]),), (int(one[i]), int(after_draft[i])))
        tally = tally.verified(1, len(gained))
        pairs[gained[0], gained[1] if len(gained) > 1 else int(after_one[i])] += 1
    expected = {(a, b): SEEDS * first[a] * second[a, b] for a in range(4) for b in range(4)}
    chi_square = sum((pairs[pair] - count) ** 2 / count for pair, count in expected.items())
    assert chi_square < 45  # a chance of 1e-4; the seeds are fixed
    assert tally.rate == pytest.approx((0.1 + 0.4) / 2, abs=4 * math.sqrt(0.25 / SEEDS))


def test_the_tally_by_hand():
    """Three drafts of which two are right, four that are all right, one that is wrong, and a row without any."""
    tally = Acceptance().verified(3, 3).verified(4, 5).verified(1, 1).verified(0, 1)
    assert tally == Acceptance(steps=3, offered=8, tried=3 + 4 + 1, accepted=6, tokens=9)
    assert tally.rate == 6 / 8 and tally.tokens_per_step == 3


def test_what_is_drawn_past_the_end_does_not_count():
    """Else a run of short answers would show a rate that its tokens a step don't bear out."""
    tally = Acceptance().verified(4, 5, kept=2)
    assert (tally.accepted, tally.tried, tally.tokens) == (2, 2, 2)
    assert Acceptance().verified(4, 3, kept=3) == Acceptance().verified(4, 3)


def test_drafts_behind_a_wrong_one_were_not_tried():
    """Else a drafter that is right half of the time would look like one that is right a quarter, and the formula be wrong."""
    tally = Acceptance().verified(8, 1).verified(8, 2)
    assert tally.tried == 3 and tally.rate == 1 / 3


def test_before_anything_there_is_no_rate():
    none = Acceptance()
    assert (none.rate, none.tokens_per_step, none.expected(4)) == (None, None, None)


@pytest.mark.parametrize(
    ("rate", "drafts", "expected"),
    [(0.5, 4, (1 - 0.5**5) / 0.5), (0.8, 4, (1 - 0.8**5) / 0.2), (0.9, 1, 1.9), (0.0, 5, 1.0), (1.0, 5, 6.0), (0.7, 0, 1.0)],
)
def test_the_formula(rate: float, drafts: int, expected: float):
    tally = Acceptance(steps=10, offered=100, tried=100, accepted=round(100 * rate), tokens=1)
    assert tally.expected(drafts) == pytest.approx(expected)


def test_a_number_of_drafts_below_zero():
    with pytest.raises(ValueError, match="drafts is -1"):
        Acceptance(1, 1, 1, 1, 2).expected(-1)


@pytest.mark.parametrize(("rate", "drafts"), [(0.3, 2), (0.6, 4), (0.9, 6)])
def test_tokens_per_step_meet_the_formula_under_its_assumption(rate: float, drafts: int):
    """Each draft right with the same chance: 20,000 steps, four standard errors."""
    draw, tally, steps = random.Random(1), Acceptance(), 20_000
    for _ in range(steps):
        drawn = [int(draw.random() >= rate) for _ in range(drafts + 1)]  # 0 is the draft
        tally = tally.verified(drafts, len(accepted((0,) * drafts, drawn)))
    assert tally.rate == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / tally.tried))
    expected, exact = tally.expected(drafts), (1 - rate ** (drafts + 1)) / (1 - rate)
    assert tally.tokens_per_step == pytest.approx(exact, abs=4 * drafts / math.sqrt(steps))
    assert expected == pytest.approx(exact, abs=4 * drafts / math.sqrt(steps))
