"""One step against the naive dense oracle in float64 (`tests.oracle`), whatever it is cut into.

The pool of every test starts as NaN everywhere (see `tests.jaxserve.driver`), so a read of a free page, of a padding row's page
or of the unwritten tail of a live page shows as NaN in the logits, and `close` refuses NaN. Tests take their steps in as few shapes as
they can, and share them: compiling is what costs here.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

from jaxserve.programs.step import Step
from jaxserve.sampling_params import SamplingParams
from models.kv_cache import ContiguousKV, PagedKV
from tests import oracle
from tests.compiling import UNOPTIMISED
from tests.jaxserve import tiny
from tests.jaxserve.driver import Driver, Rows
from tests.jaxserve.tiny import KINDS, TOLERANCE, model, prompt


class QuickDriver(Driver):
    """Its programs are compiled without LLVM's optimisation, for tests that hold logits against the oracle with a tolerance."""

    def __init__(self, *model: Any, **options: Any):
        super().__init__(*model, **options)
        self._step = _quick(self.pure)


@functools.cache
def _quick(step: Step) -> Any:
    return jax.jit(step, donate_argnums=1, compiler_options=UNOPTIMISED)


def close(found: Any, expected: Any) -> bool:
    return oracle.relative(found, expected) < TOLERANCE


def check_decode(kind: str, tokens: list[int], steps: list[np.ndarray]) -> None:
    """The last `steps` tokens of a sequence were decoded greedily, with these logits."""
    expected = tiny.logits(kind, tuple(tokens[:-1]))[-len(steps) :]
    assert close(steps, expected)
    assert tokens[-len(steps) :] == expected.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("kv", "chunk"), [(PagedKV, 1), (PagedKV, 3), (PagedKV, 16), (PagedKV, 19), (ContiguousKV, 1), (ContiguousKV, 3)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_prefill_in_chunks_and_decode_equal_the_oracle(kind: str, chunk: int, kv: Any):
    """19 tokens pass the window (6) and end within a page; the 7 decode steps cross one more page edge."""
    driver = QuickDriver(*model(kind), kind=kv)
    s = driver.sequence(prompt(0, 19))
    ends = [min(end, 19) - 1 for end in range(chunk, 19 + chunk, chunk)]
    query = 1 if chunk == 1 else 19  # a chunk of 3 as well: the rest of the segment is padding
    seen = [driver.step(Rows([s], query, [end + 1 - s.cached]))[0][0] for end in ends]
    assert close([logits[0] for logits, _ in seen], tiny.logits(kind, prompt(0, 19))[ends])
    s.tokens.append(int(seen[-1][1][0]))
    steps = driver.decode([s], 7)
    check_decode(kind, s.tokens, [seen[-1][0][0], *steps[0]])
    assert s.tokens[19:] == oracle.greedy(*model(kind), prompt(0, 19), 8)


@pytest.mark.parametrize(
    ("page", "options"),
    [
        (1, {}),
        (16, {}),
        (4, {"attention": "gather"}),
        (4, {"scanned": True}),
        *(pytest.param(page, options, marks=pytest.mark.slow) for page, options in ((4, {}), (4, {"shuffle": 5}), (64, {}))),
    ],
    ids=str,
)
def test_page_sizes_and_caches(page: int, options: dict[str, Any]):
    """Prompts that end exactly at, one before and one after a page edge (16), prefilled together; the decode crosses it."""
    driver = QuickDriver(*model("gemma3"), sequences=3, page=page, **options)
    rows = [driver.sequence(prompt(1, size)) for size in (15, 16, 17)]
    (first,) = driver.step(Rows(rows, 17, [15, 16, 17]))
    for s, (_, token) in zip(rows, first, strict=True):
        s.tokens.append(int(token[0]))
    steps = driver.decode(rows, 3)
    for s, (logits, _), seen in zip(rows, first, steps, strict=True):
        check_decode("gemma3", s.tokens, [logits[0], *seen])


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_segments_equal_the_oracle(kind: str):
    """One step: three decode rows of different lengths (one is padding) and two chunks of different sequences, one half empty."""
    driver = QuickDriver(*model(kind), sequences=4)
    a, b = driver.sequence(prompt(2, 9)), driver.sequence(prompt(3, 14))
    c, d = driver.sequence(prompt(4, 11)), driver.sequence(prompt(5, 6))
    driver.step(Rows([a, b, c], 13, [8, 13, 5]))
    decode, chunks = driver.step(Rows([a, None, b]), Rows([c, d], 8, [6, 5]))
    for s, (logits, tokens) in ((a, decode[0]), (b, decode[2]), (c, chunks[0]), (d, chunks[1])):
        expected = tiny.logits(kind, tuple(s.tokens))[s.cached - 1]
        assert close(logits[0], expected) and tokens.tolist() == [expected.argmax()]
    assert decode[1][0].size == 0
    logits, _ = driver.step(Rows([None, d, None], 13, [0, 1, 0]))[0][1]  # what the mixed step wrote is there for the next one
    assert close(logits[0], tiny.logits(kind, tuple(d.tokens))[-1])


@pytest.mark.parametrize(
    "sampling", [SamplingParams(), SamplingParams(temperature=1.0, top_k=20, seed=7)], ids=["greedy", "drawn"]
)
def test_verify_step_equals_single_steps(sampling: SamplingParams):
    """k + 1 tokens at once, of rows that hold fewer live tokens too, give the logits and tokens of k + 1 steps."""
    tokens = prompt(6, 14)
    single = QuickDriver(*model("gemma3"))
    s = single.sequence(tokens, sampling)
    singles = single.prefill(s, 1)
    verify = QuickDriver(*model("gemma3"), sequences=2, every_token=True)
    long, short = verify.sequence(tokens, sampling), verify.sequence(tokens, sampling)
    for _ in range(2):  # 4 tokens, then 5 more of the one
        verify.step(Rows([long, None, short], 5, [4 if long.cached == 0 else 5, 0, 4 - short.cached]))
    (results,) = verify.step(Rows([long, None, short], 5, [5, 0, 2]))
    for first, (logits, chosen) in ((9, results[0]), (4, results[2])):
        assert len(chosen) == {9: 5, 4: 2}[first]
        for i in range(len(chosen)):
            assert close(logits[i], singles[first + i][0][0])
            assert close(logits[i], tiny.logits("gemma3", tokens)[first + i])
            assert chosen[i] == singles[first + i][1][0]


def test_two_prompts_shorter_and_longer_than_a_page():
    """3 and 5 tokens, page size 4, prefilled together as one padded segment and decoded together."""
    driver = QuickDriver(*model("llama"), sequences=4, page=4)
    rows = [driver.sequence(prompt(7, 3)), driver.sequence(prompt(8, 5))]
    (results,) = driver.step(Rows([*rows, None], 13, [3, 5, 0]))
    for s, (_, token) in zip(rows, results, strict=False):
        s.tokens.append(int(token[0]))
    steps = driver.decode([*rows, None], 6)
    for s, (logits, _), seen in zip(rows, results, steps, strict=False):
        check_decode("llama", s.tokens, [logits[0], *seen])
