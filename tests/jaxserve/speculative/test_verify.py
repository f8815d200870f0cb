"""Drafts verified by programs: the tokens of a request are those of decode steps, whatever was guessed.

Oracles: the same request alone, one token a step, itself checked against the dense float64 model; and that model's log-probabilities.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from jaxserve.programs.bucket import Bucket
from jaxserve.programs.features import Features
from jaxserve.programs.logprobs import plain
from jaxserve.programs.program_set import Program, compile_programs
from jaxserve.programs.step import Output
from jaxserve.sampling_params import SamplingParams
from jaxserve.speculative.ngram import Acceptance, NGram, accepted
from tests.jaxserve import tiny
from tests.jaxserve.driver import Rows
from tests.jaxserve.driver import Sequence as Row
from tests.jaxserve.featured import Featured, check
from tests.jaxserve.programs.sampling_oracle import log_softmax

DRAFTS, CHUNK, SIZE = 3, 8, 15  # SIZE: tokens of an answer
FEATURES = Features(history=64, biases=8, logprobs=2, prompt_logprobs=2)
MIX = [
    SamplingParams(),
    SamplingParams(0.0, repetition_penalty=1.5, frequency_penalty=0.5),
    SamplingParams(1.0, seed=1, presence_penalty=1.5, logit_bias={7: 3.0, 9: -100}),
    SamplingParams(0.8, top_k=12, seed=4, min_tokens=6, stop_ids=[3], logit_bias={1: 9, 3: 9, 6: 9}),
]
PROMPTS = [tiny.prompt(70 + i, 3 + 2 * i) for i in range(len(MIX))]


BOTH = Bucket(((4, DRAFTS + 1), (2, CHUNK)), 16, verify=True)  # the quick tests prefill and verify with this one program
VERIFY = Bucket(((4, DRAFTS + 1),), 16, verify=True)


@functools.cache
def program(bucket: Bucket) -> Program:
    driver = Featured(FEATURES, logits=False)
    return compile_programs(driver.pure, driver.serving, driver.kv, [bucket])[bucket]


class Served(Featured):
    """Runs compiled programs instead of tracing a step."""

    def __init__(self) -> None:
        super().__init__(FEATURES, logits=False)

    def run(self, bucket: Bucket, *segments: Rows) -> tuple[Output, ...]:
        """A step; segments that are left out are padding."""
        segments += tuple(Rows([None] * rows, query) for rows, query in bucket.shape[len(segments) :])
        self.kv, outputs = program(bucket)(self.kv, tuple(self.work(s) for s in segments))
        for segment in segments:
            for i, s in enumerate(segment.rows):
                if s is not None:
                    s.cached += segment.count(i)
        return outputs

    def begin(self, i: int) -> Row:
        """Request i with the first token of its answer."""
        s = self.request(PROMPTS[i], MIX[i])
        while s.cached < len(s.tokens):
            count = min(CHUNK, len(s.tokens) - s.cached)
            _, out = self.run(BOTH, Rows([None] * 4, DRAFTS + 1), Rows([s, None], CHUNK, [count, 0]))
        s.tokens.append(int(out.tokens[0, 0]))
        return s


Alone = list[tuple[list[int], list[float]]]


@pytest.fixture(scope="module")
def alone() -> Alone:
    """Answer and log-probabilities of each request, one token a step."""
    found: Alone = []
    for prompt, params in zip(PROMPTS, MIX, strict=True):
        driver, logprobs = Featured(), list[float]()
        s = driver.begun(prompt, params)
        for _ in range(SIZE - 1):
            driver.decode([s], 1)
            said = driver.outputs[0].logprobs
            assert said is not None
            logprobs.append(float(said.following[0, 0]))
        answer = s.tokens[len(prompt) :]
        assert check(prompt, params, answer) <= 1, "the dense model decides nearly everything"
        found.append((answer, logprobs))
    return found


Guess = Callable[[int, Row], Sequence[int]]  # (request, its tokens so far) -> drafts


def speculated(
    bucket: Bucket, order: Sequence[int], guess: Guess
) -> tuple[dict[int, list[int]], dict[int, list[float]], Acceptance]:
    """All requests together in one program, request order[i] as row i -> answers, log-probabilities, tally."""
    driver, tally = Served(), Acceptance()
    rows = {i: driver.begin(i) for i in order}
    logprobs: dict[int, list[float]] = {i: [] for i in order}
    while live := [i for i in order if len(rows[i].tokens) < len(PROMPTS[i]) + SIZE]:
        drafts = {i: list(guess(i, rows[i]))[: len(PROMPTS[i]) + SIZE - len(rows[i].tokens) - 1] for i in live}
        for i in live:
            rows[i].tokens += drafts[i]
        batch = Rows([rows[i] if i in live else None for i in order], DRAFTS + 1, [1 + len(drafts.get(i, ())) for i in order])
        out = driver.run(bucket, batch)[0]
        assert out.logprobs is not None and out.tokens.shape == out.logprobs.following.shape == (4, DRAFTS + 1)
        drawn, following = np.asarray(out.tokens), np.asarray(out.logprobs.following)
        for i in live:
            s, row = rows[i], order.index(i)
            gained = accepted(drafts[i], drawn[row].tolist())
            logprobs[i] += following[row, : len(gained)].tolist()
            tally = tally.verified(len(drafts[i]), len(gained))
            del s.tokens[len(s.tokens) - len(drafts[i]) :]
            s.cached = len(s.tokens) + len(gained) - 1  # the KV of refused drafts will be written over
            s.tokens += gained
    return {i: rows[i].tokens[len(PROMPTS[i]) :] for i in order}, logprobs, tally


@pytest.mark.parametrize("bucket", [BOTH, pytest.param(VERIFY, marks=pytest.mark.slow)], ids=lambda bucket: bucket.name)
@pytest.mark.parametrize(("right", "order"), [(0.0, (0, 1, 2, 3)), (0.7, (2, 0, 3, 1)), (1.0, (3, 2, 1, 0))])
def test_whatever_is_guessed_the_tokens_are_those_of_single_steps(
    alone: Alone, right: float, order: tuple[int, ...], bucket: Bucket
):
    """Greedy and drawn rows with penalties, biases and min_tokens; 0 to 3 drafts, each right with a chance of `right`."""
    draw = np.random.default_rng(5)

    def guess(i: int, s: Row) -> list[int]:
        known = len(s.tokens) - len(PROMPTS[i])
        answer = alone[i][0][known : known + int(draw.integers(0, DRAFTS + 1))]
        return [token if draw.random() < right else int(draw.integers(96)) for token in answer]

    answers, logprobs, tally = speculated(bucket, order, guess)
    for i, (answer, values) in enumerate(alone):
        assert answers[i] == answer
        np.testing.assert_allclose(logprobs[i], values, atol=1e-5)
    assert tally.rate is not None and tally.tokens_per_step is not None and tally.offered > 10
    assert abs(tally.rate - right) < 0.25 and (right < 1 or tally.rate == 1)


def test_prompt_lookup_drafts_for_a_text_that_repeats_itself(alone: Alone):
    """A lookup that has seen the answer once, as when a prompt quotes it, is right from the third token on."""
    lookups = {i: NGram(DRAFTS, 2, 2).begin([*alone[i][0], *PROMPTS[i]]) for i in range(len(MIX))}
    seen = {i: len(PROMPTS[i]) for i in lookups}

    def guess(i: int, s: Row) -> tuple[int, ...]:
        lookups[i].push(s.tokens[seen[i] :])
        seen[i] = len(s.tokens)
        return lookups[i].draft()

    answers, _, tally = speculated(BOTH, (0, 1, 2, 3), guess)
    assert [answers[i] for i in range(len(MIX))] == [answer for answer, _ in alone]
    assert tally.tokens_per_step is not None and tally.tokens_per_step > 2


def test_prompts_beside_it(alone: Alone):
    """One program: three rows verify, a prompt runs in two pieces that are rows of one segment, and its log-probabilities come out."""
    driver, tokens = Served(), list(tiny.prompt(79, 13))
    rows = [driver.begin(i) for i in (3, 0, 1)]
    for i, s in zip((3, 0, 1), rows, strict=True):
        s.tokens += alone[i][0][1:4]
    piece, rest = driver.request(tokens, MIX[2]), driver.request(tokens, MIX[2])
    rest.pages, rest.cached = piece.pages, CHUNK
    verified, prefilled = driver.run(BOTH, Rows([*rows, None], 4, [4, 3, 1, 0]), Rows([piece, rest], CHUNK, [CHUNK, 5]))
    for row, (i, count) in enumerate(((3, 4), (0, 3), (1, 1))):
        assert verified.tokens[row, :count].tolist() == alone[i][0][1 : 1 + count]
    assert verified.tokens.shape == (4, 4) and prefilled.tokens.shape == (2, 1)
    assert int(prefilled.tokens[1, 0]) == first_token(tokens, MIX[2])
    exact = [log_softmax(at) for at in tiny.logits("llama", tuple(tokens))]
    assert prefilled.prompt is not None
    found = prefilled.prompt.on_host()
    assert found.following.shape == (2, CHUNK)
    for place in range(12):
        entry = plain(found, place // CHUNK, place % CHUNK, tokens[place + 1], 2)
        assert entry.logprob == pytest.approx(exact[place][tokens[place + 1]], abs=1e-4)
        assert [token for token, _ in entry.top] == np.argsort(-exact[place])[:2].tolist()


def first_token(prompt: list[int], params: SamplingParams) -> int:
    """What a prefill in two steps draws."""
    driver, nobody = Served(), Rows([None] * 4, DRAFTS + 1)
    s = driver.request(prompt, params)
    driver.run(BOTH, nobody, Rows([s, None], CHUNK, [CHUNK, 0]))
    _, out = driver.run(BOTH, nobody, Rows([None, s], CHUNK, [0, len(prompt) - CHUNK]))
    return int(out.tokens[1, 0])


def test_a_program_that_verifies_knows_its_trips():
    """Of its own shape, so that its ledger can be read: the verify segment and the chunks, each with its loop."""
    trips = program(BOTH).trips([[(20, 4)], [(8, 8), (13, 5)]])
    assert sorted(trips) == [f"layer{i}/attention/segment{j}" for i in (0, 1) for j in (0, 1)] and set(trips.values()) == {1}
