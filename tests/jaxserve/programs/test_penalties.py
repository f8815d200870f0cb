"""Penalties against their definitions in float64 over Python lists of tokens (`sampling_oracle`), whatever the lists are padded to."""

from __future__ import annotations

import dataclasses
from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.programs import penalties
from jaxserve.programs.penalties import Penalties
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from models.segment import Segment
from tests.jaxserve.programs.sampling_oracle import adjusted

VOCAB = 11
NONE = SamplingParams()
EMPTY = np.zeros((0, 1), np.int32)
counts = jax.jit(penalties.counts, static_argnames=("vocab", "every_token"))
penalised = jax.jit(penalties.penalised, static_argnames=("every_token",))


@dataclasses.dataclass(frozen=True)
class Line:
    """A row as people think of it: its prompt, its answer so far, and how many of those tokens the step runs (0: a padding row)."""

    prompt: list[int]
    answer: list[int]
    count: int
    params: SamplingParams = NONE

    @property
    def start(self) -> int:
        return len(self.prompt) + len(self.answer) - self.count


def packed(lines: list[Line], query: int, width: int, garbage: int = 3) -> tuple[Penalties, Segment]:
    """As an engine would, but every place that must not count holds `garbage`, a token."""
    rows = len(lines)
    tokens, start, count = np.full((rows, query), garbage, np.int32), np.full(rows, 5, np.int32), np.zeros(rows, np.int32)
    found = Penalties.blank(rows, width)
    found.history[:] = garbage
    for i, line in enumerate(lines):
        text = [*line.prompt, *line.answer]
        if line.count:
            start[i], count[i] = line.start, line.count
            tokens[i, : line.count] = text[line.start :]
            found.put(i, line.params, text[: line.start], len(line.prompt))
    return found, Segment(tokens, start, count, EMPTY)


TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=9)
SETTINGS = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.5, 100.0, 0.01]),
    presence_penalty=st.sampled_from([0.0, 0.6, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.4, -1.1]),
)


@st.composite
def line(draw: st.DrawFn, query: int) -> Line:
    prompt, answer = draw(TOKENS), draw(TOKENS)
    most = min(query, len(prompt) + len(answer))
    return Line(prompt, answer, draw(st.integers(min(most, 1), most)), draw(SETTINGS))


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(line(3), min_size=3, max_size=3),
    every_token=st.booleans(),
    width=st.sampled_from([18, 32]),
    garbage=st.integers(0, VOCAB - 1),
)
def test_counts_equal_those_of_the_lists(lines: list[Line], every_token: bool, width: int, garbage: int):
    """Of the prompt and of the answer, up to each place where a token is drawn."""
    found, segment = packed(lines, 3, width, garbage)
    seen = np.asarray(counts(found, segment, VOCAB, every_token=every_token))
    assert seen.shape == (3, 3 if every_token else 1, 2, VOCAB)
    for i, each in enumerate(lines):
        text = [*each.prompt, *each.answer]
        for place in range(each.count if every_token else min(each.count, 1)):
            known = each.start + (place + 1 if every_token else each.count)
            part = (Counter(text[: min(known, len(each.prompt))]), Counter(text[len(each.prompt) : known]))
            assert seen[i, place].tolist() == [[one[token] for token in range(VOCAB)] for one in part]


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(line(2), min_size=3, max_size=3),
    every_token=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_penalised_logits_equal_the_definition(lines: list[Line], every_token: bool, seed: int):
    """Three rows with settings of their own; one without penalties keeps its logits to the bit."""
    sampled = 2 if every_token else 1
    logits = (5 * np.random.default_rng(seed).standard_normal((3, sampled, VOCAB))).astype(np.float32)
    found, segment = packed(lines, 2, 18)
    out = np.asarray(penalised(logits.reshape(-1, VOCAB), found, segment, every_token=every_token)).reshape(logits.shape)
    assert np.isfinite(out).all()
    for i, each in enumerate(lines):
        text = [*each.prompt, *each.answer]
        for place in range(each.count if every_token else min(each.count, 1)):
            known = each.start + (place + 1 if every_token else each.count)
            answer = text[len(each.prompt) : known]
            expected = adjusted(logits[i, place], each.params, text[: min(known, len(each.prompt))], answer)
            np.testing.assert_allclose(out[i, place], expected, rtol=1e-6, atol=1e-6)
            if not each.params.penalised:
                np.testing.assert_array_equal(out[i, place], logits[i, place])


def one(logits: list[float], params: SamplingParams, prompt: list[int], answer: list[int]) -> list[float]:
    found, segment = packed([Line(prompt, answer, 1, params)], 1, 16)
    return np.asarray(penalised(np.array([logits], np.float32), found, segment, every_token=False))[0].tolist()


def test_worked_example():
    """Token 0 stands in the prompt, token 1 twice in the answer, token 2 in both, token 3 nowhere. Binary fractions: exact."""
    prompt, answer = [0, 2], [1, 2, 1]
    logits = [4.0, -4.0, 1.0, 3.0]
    assert one(logits, SamplingParams(repetition_penalty=2.0), prompt, answer) == [2.0, -8.0, 0.5, 3.0]
    assert one(logits, SamplingParams(presence_penalty=0.5), prompt, answer) == [4.0, -4.5, 0.5, 3.0]
    assert one(logits, SamplingParams(frequency_penalty=0.5), prompt, answer) == [4.0, -5.0, 0.5, 3.0]
    every = SamplingParams(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    assert one(logits, every, prompt, answer) == [2.0, -8.0 - 1.0 - 0.25, 0.5 - 0.5 - 0.25, 3.0]


@pytest.mark.parametrize(("rows", "query", "width"), [(2, 1, 16), (7, 1, 16), (4, 4, 16), (64, 1, 128), (3, 2, 999)])
@pytest.mark.parametrize("garbage", [0, 4, 7])
def test_padding_is_never_counted(rows: int, query: int, width: int, garbage: int):
    """A row with a frequency penalty, alone and among padding in larger buckets whose padding holds the very tokens: equal bits."""
    params = SamplingParams(frequency_penalty=0.7, presence_penalty=0.2, repetition_penalty=1.7)
    row = Line([4, 4, 1], [7, 4, 7], 1, params)
    logits = (5 * np.random.default_rng(0).standard_normal((rows, VOCAB))).astype(np.float32)
    at = rows // 2
    alone, segment = packed([row], 1, 6)
    expected = np.asarray(penalised(logits[at : at + 1], alone, segment, every_token=False))[0]
    found, segment = packed([row if i == at else Line([], [], 0) for i in range(rows)], query, width, garbage)
    np.testing.assert_array_equal(np.asarray(penalised(logits, found, segment, every_token=False))[at], expected)
    np.testing.assert_allclose(expected, adjusted(logits[at], params, row.prompt, row.answer), rtol=1e-6)


def test_more_tokens_than_there_is_room_for_are_refused():
    found = Penalties.blank(1, 4)
    found.put(0, SamplingParams(presence_penalty=1), [1, 2, 3, 4], 2)
    with pytest.raises(UserError, match="a penalised row has 5 tokens and the program can count 4; compile it with a longer"):
        found.put(0, SamplingParams(presence_penalty=1), [1, 2, 3, 4, 5], 2)


@pytest.mark.peers
@pytest.mark.parametrize("penalty", [1.0, 1.3, 0.7])
def test_repetition_equals_transformers(penalty: float):
    process = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    torch = pytest.importorskip("torch", reason="needs the extra 'transformers'")
    logits = (5 * np.random.default_rng(3).standard_normal((1, VOCAB))).astype(np.float32)
    theirs = process.RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([[4, 4, 1, 7, 4, 7]]), torch.tensor(logits.copy()))
    ours = one(logits[0].tolist(), SamplingParams(repetition_penalty=penalty), [4, 4, 1], [7, 4, 7])
    np.testing.assert_array_equal(ours, theirs[0].numpy())
