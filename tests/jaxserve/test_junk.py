"""Anything at all in place of anything that a request or a setting carries: it is refused in one line, or what is kept is plain and works.

Oracles: the dense model for those who are served beside it; JSON for what is kept.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxserve.engine.config import EngineConfig
from jaxserve.engine.request_handle import RequestHandle
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.features import Features
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.transfer import Link
from jaxserve.speculative.ngram import NGram
from models.errors import UserError
from tests.jaxserve.engines import engine, nothing_left, numbered, run
from tests.jaxserve.proofs import greedy_answer


class Rude:
    """Even its repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("none of your business\nreally")


VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 5, 2**31, 2**64, -(2**64), 10**5000, 0.0, 0.5, 1.0, -0.5, 1e-320, 1e308),
    *(math.nan, math.inf, -math.inf, 1j, "", "a", "1", "high", "\ud83d", "\0", b"", b"ab", bytearray(b"ab"), memoryview(b"ab")),
    *(
        [],
        [1],
        [1, 2],
        [True],
        [1.5],
        ["a"],
        [None],
        [[1, 2]],
        (),
        (3, 4),
        {1, 2},
        frozenset({1}),
        {},
        {1: 2},
        {1: 0.5},
        {"a": 1},
    ),
    *(
        {"prompt": "ab"},
        {"prompt_token_ids": [1]},
        {"prompt": 1},
        [{"role": "user", "content": "a"}],
        [(1, 2)],
        range(2, 4),
        object(),
    ),
    *(np.float32(0.5), np.float16("nan"), np.int64(2), np.uint8(1), np.True_, np.str_("a"), np.array([1, 2]), np.array(1.5)),
    *(
        np.array([[1]]),
        np.array([0.5]),
        np.array([True]),
        np.array(["a"]),
        np.array([object()]),
        Decimal("0.5"),
        Fraction(1, 2),
    ),
    *(Rude(), int, len, Ellipsis, NotImplemented, Limits(rows=2), SamplingParams(), QueueRule()),
]
MAKE: list[Callable[[], Any]] = [lambda: iter([1, 2]), lambda: (n for n in [1]), lambda: map(int, "12"), lambda: {1: 2}.keys()]


def junk() -> st.SearchStrategy[Any]:
    some, made = st.sampled_from(VALUES), st.sampled_from(MAKE).map(lambda make: make())
    return st.one_of(some, made, st.integers(), st.floats(), st.text(max_size=3), st.lists(some, max_size=2))


def fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.init]


def some_of(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Junk for a few of these."""
    return st.dictionaries(st.sampled_from(names), junk(), max_size=3)


@settings(max_examples=80)
@given(
    prompts=st.lists(st.one_of(junk(), st.just([3, 4, 5])), max_size=4),
    params=st.lists(some_of([*fields(SamplingParams), "stop_token_ids", "best_of", "nonsense"]), max_size=4),
    when=st.lists(some_of(["priority", "timeout", "raw"]), max_size=4),
)
@example(prompts=[[1]], params=[{}], when=[{"priority": "high"}])
@example(prompts=[[1]], params=[{}], when=[{"priority": math.nan}])
@example(prompts=[[1]], params=[{"temperature": np.float32(0.5)}], when=[{}])
@example(prompts=[b"ab", {1, 2}, {1: 2}, [True]], params=[{}], when=[{}])
def test_nobody_else_is_harmed(prompts: list[Any], params: list[dict[str, Any]], when: list[dict[str, Any]]):
    one = engine(Continuous(Limits(rows=4)))
    good = SamplingParams(max_tokens=5, ignore_eos=True)
    mine, others = [one.submit(numbered(1, 6), good)], list[RequestHandle]()
    for i, prompt in enumerate(prompts):
        for fresh in (False, True):  # what is wrong with a prompt may hide what is wrong with the rest
            try:
                asked = SamplingParams(**{"max_tokens": 3, **(params[i] if i < len(params) else {})})
                others.append(one.submit([7] if fresh else prompt, asked, **(when[i] if i < len(when) else {})))
            except UserError as error:
                assert "\n" not in str(error) and len(str(error)) < 400
    mine.append(one.submit(numbered(2, 6), good))
    json.dumps(one.snapshot(), allow_nan=False)
    run(one)
    for handle in mine:
        assert handle.answers[0].tokens == greedy_answer(handle.prompt, 5)
    assert all(handle.finished for handle in others)
    nothing_left(one)


KINDS: dict[Any, dict[str, Any]] = {
    SamplingParams: {},
    Limits: {},
    QueueRule: {},
    Request: {"id": 0, "prompt": (1, 2), "limit": 3},
    Static: {},
    Dynamic: {},
    Continuous: {},
    Chunked: {},
    Disaggregated: {"link": Link(1, 1.0)},
    Link: {"token_bytes": 1, "bandwidth": 1.0},
    KVLayout: {"units": 1, "unit": 1},
    Features: {},
    NGram: {},
}


def plain(value: Any) -> bool:
    """Nothing but Python's own values, none of them NaN."""
    if isinstance(value, Mapping):
        return all(map(plain, value)) and all(map(plain, value.values()))
    if isinstance(value, tuple | list | range):
        return all(map(plain, value))
    return value is None or (type(value) in (int, float, bool, str) and value == value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_kept_is_plain(kind: Any):
    @settings(max_examples=150)
    @given(some_of([name for name in fields(kind) if name != "prompt"]))
    def any_values(values: dict[str, Any]) -> None:
        try:
            made = kind(**{**KINDS[kind], **values})
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 400
        else:
            assert plain(dataclasses.asdict(made)), made

    any_values()


@pytest.mark.parametrize("prompt", VALUES, ids=lambda value: type(value).__name__)
def test_a_request_of_the_scheduler_has_a_sequence_for_a_prompt(prompt: Any):
    """Whose entries it does not look at, for a simulation may give any."""
    try:
        made = Request(0, prompt, 1)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(made.prompt, list | tuple | range) and len(made.prompt)


@settings(max_examples=150)
@given(some_of(fields(EngineConfig)))
def test_settings_of_an_engine(values: dict[str, Any]):
    """Paths stay as they are; nothing is made of them yet."""
    try:
        made = EngineConfig(**values)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
    else:
        assert plain({name: value for name, value in dataclasses.asdict(made).items()})
