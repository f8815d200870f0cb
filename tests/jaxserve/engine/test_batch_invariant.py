"""Where one program of fixed shape runs every token, an answer is its request's own to the last bit, in 16 bits too.

Oracle: the same request alone, token by token and logarithm by logarithm: nothing is rounded before it is compared.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest

from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.engine.engine import Engine
from jaxserve.engine.model import load_model
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import Features
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.static import Static
from tests.jaxserve import smollm2
from tests.jaxserve.engines import LINK, Short, run

CONTEXT, PAGE = 64, 8
WIDTH, UNITS = CONTEXT // PAGE, 8 * CONTEXT // PAGE
FEATURES = Features(logprobs=0)
UNIFORM = Buckets((16,), (WIDTH,), (16, 1), PAGE)
POWERS = Buckets((1, 2, 4, 8), (WIDTH,), (4, 16), PAGE, prefills=(1,), mixed=(8,))
ROWS = Limits(rows=5)
PROMPTS = [[random.Random(i).randrange(7, 200) for _ in range(1 + 11 * i % 47)] for i in range(12)]
PROMPTS += [[*PROMPTS[4][:16], i] for i in range(3)]  # these begin alike
DRAWS = [
    SamplingParams(max_tokens=8, ignore_eos=True, logprobs=0, temperature=0.9 * (i % 2), seed=i) for i in range(len(PROMPTS))
]

Answer = tuple[list[int], list[float | None]]


@functools.cache
def prepared(model: str, dtype: str, ladder: Buckets) -> CompiledPrograms:
    one = load_model(model, dtype=dtype, context=CONTEXT)
    pool = KVLayout(UNITS, PAGE, dtype, prefix=True)
    return CompiledPrograms.of(one, pool, ladder, FEATURES, one.empty_pool(UNITS, PAGE, dtype), workers=2)


def answers(
    parts: CompiledPrograms, policy: Policy, order: list[int], *, prefix: bool = True, lent: int = UNITS, **more: Any
) -> dict[int, Answer]:
    """Of these prompts, submitted in this order: tokens and their log-probabilities."""
    pool = Short(UNITS, PAGE, parts.pool.dtype, prefix=prefix, lent=lent)
    engine = Engine(parts.model, policy, pool, parts.ladder, features=FEATURES, prepared=parts, **more)
    handles = {i: engine.submit(PROMPTS[i], DRAWS[i]) for i in order}
    run(engine)
    return {i: (list(one.answers[0].tokens), [each.logprob for each in one.logprobs[0]]) for i, one in handles.items()}


ALL = list(range(len(PROMPTS)))
WAYS: list[tuple[Policy, list[int], dict[str, Any]]] = [
    (Continuous(Limits(rows=5, ahead=1)), ALL, {}),
    (Chunked(ROWS, 23), ALL[::-1], {}),
    (Static(ROWS), ALL[::-1], {"prefix": False}),
    (Continuous(Limits(rows=5, preemptions=5)), ALL, {"lent": 13}),
    (Disaggregated(LINK, ROWS), ALL, {"workers": 2}),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_answer_is_its_requests_own_to_the_last_bit(dtype: str):
    parts = prepared("random:tiny", dtype, UNIFORM)
    alone = {i: answers(parts, Continuous(Limits(rows=1)), [i], prefix=False)[i] for i in ALL}
    for policy, order, more in WAYS:
        assert answers(parts, policy, order, **more) == alone, policy


@pytest.mark.slow
def test_with_real_weights_in_16_bits_and_that_it_is_no_matter_of_course():
    """SmolLM2. With a ladder of shapes the same requests differ in their last bits, by policy alone."""
    smollm2.checkpoint()  # skips where the weights aren't installed
    for ladder, equal in ((UNIFORM, True), (POWERS, False)):
        parts = prepared("smollm2", "bfloat16", ladder)
        first, *others = (answers(parts, policy, order, **more) for policy, order, more in WAYS)
        assert all(other == first for other in others) == equal
