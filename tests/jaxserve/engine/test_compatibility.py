"""Parts that don't fit each other are refused before anything is compiled. Oracle: the smallest pair that doesn't, by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from jaxserve.engine.compatibility import check_compatibility
from jaxserve.engine.engine import Engine
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import PLAIN, Features
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.speculative.ngram import NGram
from models.errors import UserError
from tests.jaxserve.engines import model
from tests.jaxserve.programs.test_program_set import compile_events

GOOD: dict[str, Any] = {
    "policy": Continuous(Limits(rows=4)),
    "pool": KVLayout(44, 4),
    "ladder": Buckets((4,), (10,), (2, 8), 4, drafts=2, steps=3),
    "features": PLAIN,
    "drafter": None,
    "workers": 1,
}


def reach(**parts: Any) -> int:
    return check_compatibility(model(), **{**GOOD, **parts})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"policy": Continuous(Limits(rows=5))}, "up to 5 rows and the ladder's largest batch is 4; lower"),
        ({"policy": Continuous(Limits(rows=4), 4)}, "up to 4 steps at once and the ladder's programs run 3; lower multi_step"),
        ({"drafter": NGram(3)}, "up to 3 drafts are made and the ladder's programs verify 2; make fewer"),
        ({"drafter": NGram(2), "policy": Continuous(Limits(rows=4, ahead=1))}, "ahead is 1; drafts are made of .* set it to 0"),
        ({"workers": 0}, "0 workers runs nothing; give it at least 1"),
        (
            {"pool": KVLayout(4, 4, kind="contiguous")},
            r"tables are \[10\] pages wide; contiguous KV has one slot a row: make it 1",
        ),
        ({"pool": KVLayout(44, 8)}, "the ladder counts pages of 4 tokens and the pool has them of 8; make them equal"),
        (
            {"pool": KVLayout(4, 40, kind="contiguous"), "ladder": Buckets((4,), (1,), (2, 8), 20)},
            "the ladder counts slots of 20 tokens and the pool has them of 40",
        ),
        ({"features": Features(history=39)}, "penalties count 39 tokens and sequences have up to 40; raise history to that"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_two_that_do_not_fit(parts: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message) as error:
        reach(**parts)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("parts", "context"),
    [
        ({}, 40),
        ({"features": Features(history=40)}, 40),
        ({"drafter": NGram(2)}, 40),
        ({"pool": KVLayout(9, 4)}, 36),  # a pool of 9 pages
        ({"policy": Continuous(Limits(rows=4, context=17))}, 17),
        ({"ladder": Buckets((4,), (11,), (2, 8), 4)}, 40),  # the model was made ready for 40
        ({"pool": KVLayout(2, 30, kind="contiguous"), "ladder": Buckets((4,), (1,), (2, 8), 30)}, 30),  # one slot, not both
        ({"policy": Continuous(Limits(rows=4, context=17)), "features": Features(history=17)}, 17),
    ],
)
def test_the_longest_sequence_is_what_all_hold(parts: dict[str, Any], context: int):
    assert reach(**parts) == context


def test_an_engine_refuses_before_it_compiles():
    with compile_events() as events, pytest.raises(UserError, match="largest batch is 2"):
        Engine(model(), Continuous(Limits(rows=4)), KVLayout(44, 4), Buckets((2,), (10,), (2, 8), 4))
    assert not events


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"units": 0}, "units is 0; it must be a whole number of at least 1"),
        ({"unit": 0}, "unit, in tokens, is 0; it must be a whole number of at least 1"),
        ({"dtype": "int8"}, "KV can't be stored as 'int8'; choose float32 or bfloat16"),
        ({"kind": "slots"}, "KV memory 'slots' is unknown; choose paged or contiguous"),
        ({"kind": "contiguous", "prefix": True}, "a prefix cache needs pages"),
    ],
)
def test_pools_that_hold_nothing_or_can_not_be(given: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(KVLayout(44, 4), **given)
