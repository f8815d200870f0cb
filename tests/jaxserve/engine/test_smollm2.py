"""Law 1 with real weights: the 64 built-in prompts through the engine, batched in three ways, against each of them by itself.

Where the shape of a batch moves a last bit, the likeliest of two nearly equal tokens may change. The tests don't forgive that: they say how
many answers differ, where, and by how much the two tokens' log-probabilities differ, in the float32 pass of `smollm2.Scorer`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.engine.engine import Engine
from jaxserve.engine.model import Model, load_model
from jaxserve.engine.request_handle import RequestHandle
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.speculative.ngram import NGram
from tests.jaxserve import smollm2

NEW, CONTEXT, PAGE = smollm2.NEW, smollm2.CONTEXT, smollm2.PAGE
WIDTH, UNITS = CONTEXT // PAGE, 64 * CONTEXT // PAGE
LADDER = Buckets((1, 8, 64), (WIDTH,), (8, 64), PAGE, prefills=(1,), mixed=(8, 64), drafts=3)
GREEDY = SamplingParams(max_tokens=NEW, ignore_eos=True)

Tell = Callable[[str, object], None]  # (name, value): the report shows what is named "found"

pytestmark = pytest.mark.slow


@functools.cache
def model() -> Model:
    smollm2.checkpoint()  # skips where the weights aren't installed
    return load_model("smollm2", dtype="float32", context=CONTEXT, layers="unrolled")


@functools.cache
def prepared() -> CompiledPrograms:
    pool = KVLayout(UNITS, PAGE)
    one = Engine(model(), Continuous(Limits(rows=1)), pool, LADDER)
    return one.prepared


def served(policy: Any, prompts: list[int], **more: Any) -> tuple[Engine, list[RequestHandle]]:
    one = Engine(model(), policy, KVLayout(UNITS, PAGE, prefix=more.pop("prefix", False)), LADDER, prepared=prepared(), **more)
    handles = [one.submit(smollm2.prompts()[i], GREEDY) for i in prompts]
    for _ in one.run():
        pass
    return one, handles


@functools.cache
def alone() -> tuple[tuple[int, ...], ...]:
    """Each prompt in an engine in which nothing else runs meanwhile."""
    one, _ = served(Continuous(Limits(rows=1)), [])
    found = []
    for prompt in smollm2.prompts():
        handle = one.submit(prompt, GREEDY)
        for _ in one.run():
            pass
        found.append(tuple(handle.answers[0].tokens))
    return tuple(found)


def differences(handles: list[RequestHandle]) -> list[tuple[str, float]]:
    """Of each answer that is not the one alone: where it leaves it, and how far apart the logits of the two tokens are there."""
    found = []
    for i, handle in enumerate(handles):
        mine, expected = handle.answers[0].tokens, alone()[i]
        if tuple(mine) != expected:
            at = next(k for k, (a, b) in enumerate(zip(mine, expected, strict=True)) if a != b)
            known = (*smollm2.prompts()[i], *expected[:at])
            logits = smollm2.Scorer("float32", "float32")(known)[-1]
            gap = float(logits[expected[at]] - logits[mine[at]])
            found.append((f"prompt {i}, token {at}: {mine[at]} and not {expected[at]}, whose logits are {gap:.2e} apart", gap))
    return found


def judge(handles: list[RequestHandle], tell: Tell) -> None:
    found = differences(handles)
    ties = sum(gap == 0 for _, gap in found)
    tell("found", f"{len(found)} of {len(handles)} answers differ from those alone; {ties} of these are argmax ties")
    assert not found, f"{len(found)} of {len(handles)} answers differ: " + "; ".join(line for line, _ in found)


def test_one_by_one_is_what_one_program_of_all_64_draws():
    """The same tokens as the step's own test, which shares no line with the engine."""
    assert alone() == smollm2.greedy()


@pytest.mark.parametrize("ahead", [0, 1])
def test_continuous(ahead: int, record_property: Tell):
    one, handles = served(Continuous(Limits(rows=64, ahead=ahead)), list(range(64)))
    judge(handles, record_property)
    assert max(record.rows for record in one.records) == 64


def test_chunked_with_mixed_programs_and_a_prefix_cache(record_property: Tell):
    one, handles = served(Chunked(Limits(rows=64, ahead=1), 96), list(range(64)), prefix=True)
    judge(handles, record_property)
    assert any("decode" in name and "prefill" in name for record in one.records for name in record.programs)
    assert one.status().cached > 0


def test_speculation(record_property: Tell):
    one, handles = served(Chunked(Limits(rows=64), 256), list(range(64)), drafter=NGram(3))
    judge(handles, record_property)
    taken = one.status().acceptance
    assert taken.accepted > 100, taken
    assert any("verify" in name and "prefill" in name for record in one.records for name in record.programs)
