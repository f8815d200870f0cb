"""A step with features: rows with settings of their own, however they are batched, cut, preempted and padded.

Oracles: the dense float64 model with the slow definition of sampling (`featured.check`), and the same request alone.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest

from jaxserve.programs.bucket import Bucket
from jaxserve.programs.features import PLAIN, Features
from jaxserve.programs.logprobs import PromptLogprobs, plain
from jaxserve.programs.program_set import blank, compile_programs
from jaxserve.programs.sampling import sample
from jaxserve.programs.step import Output, Step
from jaxserve.sampling_params import SamplingParams
from models.forward import forward
from models.kv_cache import PagedKV
from models.layers import KV
from tests.jaxserve import tiny
from tests.jaxserve.driver import Rows, Sequence
from tests.jaxserve.featured import Featured, check
from tests.jaxserve.programs.sampling_oracle import log_softmax
from tests.jaxserve.tiny import prompt

SIZE = 14  # tokens of an answer
MIX = [
    SamplingParams(repetition_penalty=1.8),
    SamplingParams(1.0, seed=1, presence_penalty=1.5, frequency_penalty=1.0),
    SamplingParams(0.0, frequency_penalty=2.0, logit_bias={7: 3.0, 9: -100}),
    SamplingParams(1.5, seed=3, logit_bias={20: 100, 30: 100, 40: 100}, repetition_penalty=1.2),
    SamplingParams(0.8, top_k=12, seed=4, min_tokens=6, stop_ids=[3], logit_bias={1: 9, 3: 9, 6: 9}),
    SamplingParams(),
    SamplingParams(1.0, top_p=0.8, min_p=0.05, seed=6, repetition_penalty=0.7),
]
PROMPTS = [prompt(40 + i, 3 + 2 * i) for i in range(len(MIX))]


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    """The answer to each request by itself, checked."""
    answers = [Featured().answer(p, params, SIZE) for p, params in zip(PROMPTS, MIX, strict=True)]
    unsure = [check(p, params, answer) for p, params, answer in zip(PROMPTS, MIX, answers, strict=True)]
    assert sum(unsure) <= 3, "the oracle decides nearly everything"
    return answers


def test_settings_show(alone: list[list[int]]):
    """Each feature leaves its mark on its own row, so that the tests below could not pass without it."""
    for answer, (p, params) in zip(alone, zip(PROMPTS, MIX, strict=True), strict=True):
        without = SamplingParams(params.temperature, params.top_k, params.top_p, params.min_p, params.seed)
        assert (Featured().answer(p, without, SIZE) == answer) == (params == SamplingParams())
    assert set(alone[3]) <= {20, 30, 40} and 9 not in alone[2]
    assert not {1, 3, 6} & set(alone[4][:6]) and alone[4][6] in (1, 3, 6)


@pytest.mark.parametrize("size", [7, 16])
def test_rows_in_company_equal_rows_alone(size: int, alone: list[list[int]]):
    """All requests together, in other places, among padding."""
    driver, order = Featured(), np.random.default_rng(size).permutation(size)
    rows = [driver.begun(PROMPTS[i], MIX[i]) if i < 7 else None for i in order]
    driver.decode(rows, SIZE - 1)
    for i, s in zip(order, rows, strict=True):
        assert s is None or s.tokens[len(PROMPTS[i]) :] == alone[i]


@pytest.mark.parametrize("chunk", [1, 8])
def test_prompts_in_chunks_and_after_preemption(chunk: int, alone: list[list[int]]):
    """The answer so far runs again in chunks that cross from prompt to answer; then the row goes on, in a program of another width."""
    for i in (0, 1, 2, 4, 6):
        assert Featured().answer(PROMPTS[i], MIX[i], SIZE, chunk) == alone[i]
        driver = Featured(Features(history=33, biases=6))
        s = driver.request(PROMPTS[i], MIX[i], alone[i][:8])
        assert driver.prefill(s, chunk)[-1][1].tolist() == [alone[i][8]]
        s.tokens.append(alone[i][8])
        driver.decode([s], SIZE - 9)
        assert s.tokens[len(PROMPTS[i]) :] == alone[i]


def test_verifying_drafts_counts_them(alone: list[list[int]]):
    """Three tokens of the known answer at once: after each of them what the request alone draws, and its logprob."""
    driver = Featured(every_token=True)
    rows = [driver.request(p, params, answer) for p, params, answer in zip(PROMPTS, MIX, alone, strict=True)]
    while any(counts := [min(len(p) - s.cached, 3) for p, s in zip(PROMPTS, rows, strict=True)]):
        driver.step(Rows(rows, 3, counts))
    for first in range(0, SIZE - 3, 3):
        (results,) = driver.step(Rows(rows, 3))
        found = driver.outputs[0].logprobs
        assert found is not None
        for i, (logits, tokens) in enumerate(results):
            assert tokens.tolist() == alone[i][first + 1 : first + 4]
            exact = [log_softmax(at)[token] for at, token in zip(logits, tokens, strict=True)]
            np.testing.assert_allclose(np.asarray(found.following)[i], exact, atol=1e-5)


def test_a_mixed_step():
    """Decoding rows and a chunk in one program, each segment with its own arrays."""
    expected = [Featured().answer(PROMPTS[i], MIX[i], 2) for i in (0, 1, 2)]
    driver = Featured()
    a, b, c = (driver.request(PROMPTS[i], MIX[i]) for i in (0, 1, 2))
    driver.step(Rows([None, None, None]), Rows([a, b], 8, [3, 5]))
    a.tokens.append(expected[0][0])
    b.tokens.append(expected[1][0])
    decode, chunk = driver.step(Rows([b, None, a]), Rows([None, c], 8, [0, 7]))
    assert [decode[0][1][0], decode[2][1][0], chunk[1][1][0]] == [expected[1][1], expected[0][1], expected[2][0]]


def test_logprobs_are_the_models_own(alone: list[list[int]]):
    """Finite and before penalties, bias, temperature and filters, also of a token that top_k 1 or a bias of 100 left alone."""
    for i, params in ((1, MIX[1]), (3, MIX[3]), (4, MIX[4]), (0, SamplingParams(1.5, top_k=1, seed=9))):
        driver = Featured()
        s = driver.request(PROMPTS[i], params, alone[i][:-1])
        token = int(driver.prefill(s, 8)[-1][1][0])
        exact = log_softmax(tiny.logits("llama", tuple(s.tokens))[-1])
        found = driver.outputs[0].logprobs
        assert found is not None
        entry = plain(found.on_host(), 0, 0, token, 3)
        assert entry.logprob == pytest.approx(exact[token], abs=1e-4)
        assert [other for other, _ in entry.top] == np.argsort(-exact)[:3].tolist()
        assert [value for _, value in entry.top] == pytest.approx(sorted(exact)[:-4:-1], abs=1e-4)
        assert json.loads(json.dumps(entry, allow_nan=False))[0] == token


SCORES = Features(prompt_logprobs=2)


def gather(driver: Featured, s: Sequence, chunk: int, gathered: PromptLogprobs, end: int) -> None:
    while s.cached < end:
        start, count = s.cached, min(chunk, end - s.cached)
        driver.step(Rows([None, s], chunk, [0, count]))
        found = driver.outputs[0].prompt
        assert found is not None
        gathered.add(found.on_host(), 1, start, count)


@pytest.mark.parametrize("chunk", [3, 8])
def test_prompt_logprobs_twice_over_the_same_page(chunk: int):
    """A page and a token, twice: the second run finds the page's KV there and still gives the same values, for it runs it again."""
    tokens = prompt(50, 5)
    exact = [log_softmax(row) for row in tiny.logits("llama", tokens)]
    driver, runs = Featured(SCORES, logits=False), []
    pages = driver.request(tokens, SamplingParams()).pages
    for _ in range(2):
        s, gathered = driver.request(tokens, SamplingParams()), PromptLogprobs(tokens, 2)
        s.pages[0] = pages[0]
        gather(driver, s, chunk, gathered, 5)
        driver.free += s.pages[1:]
        runs.append(gathered)
    assert runs[0].complete and runs[0].entries == runs[1].entries and runs[0].entries[0] is None
    for i, entry in enumerate(runs[0].entries[1:], 1):
        assert entry is not None and entry.token == tokens[i]
        assert entry.logprob == pytest.approx(exact[i - 1][tokens[i]], abs=1e-4)
        assert [token for token, _ in entry.top] == np.argsort(-exact[i - 1])[:2].tolist()
    hit = driver.request(tokens, SamplingParams())
    hit.pages[0], hit.cached, missed = pages[0], 4, PromptLogprobs(tokens, 2)
    gather(driver, hit, chunk, missed, 5)
    assert not missed.complete, "a prefix hit would lose some"


def test_prompt_logprobs_draw_the_same_token_and_send_little_to_the_host():
    """What leaves the program is some numbers a token, whatever the vocabulary; the answer is that of a program without them."""
    params = SamplingParams(1.0, seed=5)
    driver = Featured(SCORES, logits=False)
    s = driver.request(prompt(51, 7), params)
    ((_, (_, token)),) = driver.step(Rows([None, s], 8, [0, 7]))
    assert token[0] == Featured(PLAIN).answer(prompt(51, 7), params, 1)[0]
    assert sum(np.asarray(leaf).size for leaf in jax.tree.leaves(driver.outputs)) == 2 + 2 * 8 * (1 + 2 * 2)


def test_a_program_without_features_stays_as_it_was():
    """Its jaxpr is that of the model's pass and the draw, written down here; its work has the nine arrays a segment that it had."""
    driver, bucket = Featured(PLAIN), Bucket(((2, 1), (1, 8)), 16)
    work = blank(bucket, driver.kv.units)
    assert len(jax.tree.leaves(work)) == 2 * 9

    def by_hand(serving: Any, kv: Any, work: Any) -> Any:
        kv, logits = forward(driver.pure.graph, driver.pure.config, serving, kv, tuple(w.segment for w in work))
        tokens = [
            sample(each, w.sampling, w.segment.start + w.segment.count).reshape(w.segment.rows, -1)
            for each, w in zip(logits, work, strict=True)
        ]
        return kv, tuple(Output(each, None) for each in tokens)

    step = Step(driver.pure.graph, driver.pure.config)
    shown = [str(jax.make_jaxpr(f)(driver.serving, driver.kv, work)) for f in (step, by_hand)]
    assert shown[0] == shown[1]


def test_programs_with_features_take_their_blank_work():
    """And serve a row that uses none of them, with the token that the dense oracle finds likeliest."""
    driver, bucket = Featured(), Bucket(((2, 4),), 4)
    features = Features(history=20, biases=4, logprobs=2, prompt_logprobs=1)
    step = Step(driver.pure.graph, driver.pure.config, features=features)
    pool: KV = PagedKV.zeros(driver.pure.config, 4, 4, np.float32)
    (program,) = compile_programs(step, driver.serving, pool, [bucket])
    work = blank(bucket, 4, features)
    segment = work[0].segment
    segment.tokens[1], segment.count[1], segment.table[1, 0] = (5, 6, 7, 8), 4, 0
    pool, (out,) = program(pool, work)
    assert out.tokens[1, 0] == tiny.logits("llama", (5, 6, 7, 8))[-1].argmax()
    assert out.logits is None and out.logprobs is not None and out.prompt is not None
    assert out.logprobs.top.shape == (2, 1, 2) and out.prompt.top.shape == (2, 4, 1)
