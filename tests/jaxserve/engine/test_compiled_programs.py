"""Programs that several engines share. Oracles: JAX's own compile events; for what doesn't fit, the one part that differs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from jaxserve.engine.compiled_programs import KVCopier
from jaxserve.engine.engine import Engine
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import Features
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from models.errors import UserError
from tests.jaxserve.engines import PLAIN_KIT, engine, model, nothing_left, numbered, prepared, run
from tests.jaxserve.programs.test_program_set import compile_events
from tests.jaxserve.proofs import greedy_answer


def test_two_engines_at_once_share_programs_and_nothing_else():
    ready = prepared(PLAIN_KIT)
    with compile_events() as events:
        first, second = engine(Continuous(Limits(rows=4))), engine(Chunked(Limits(rows=2), 8), prefix=True)
    built = list(events)
    assert first.programs is second.programs is ready.programs
    handles = []
    with compile_events() as events:
        for i in range(4):
            handles += [each.submit(numbered(i, 9), SamplingParams(max_tokens=5, ignore_eos=True)) for each in (first, second)]
        while not (first.idle and second.idle):
            first.step()
            second.step()
    assert not events and not any("backend_compile" in event for event in built)
    for handle in handles:
        assert handle.answers[0].tokens == greedy_answer(handle.prompt, 5)
    nothing_left(first)
    nothing_left(second)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"model": "other"}, "for another model, tiny; prepare tiny by itself"),
        ({"pool": dataclasses.replace(PLAIN_KIT.pool(), units=45)}, r"for a pool of \(44, 4, .*and this engine has \(45, 4"),
        ({"ladder": Buckets((1, 2, 4), (10,), (2, 7), 4)}, "for a ladder of Buckets"),
        ({"features": Features(logprobs=0)}, "for a features of Features"),
    ],
    ids=["model", "pool", "ladder", "features"],
)
def test_what_was_prepared_for_something_else_is_refused(parts: dict[str, Any], message: str):
    given: dict[str, Any] = {
        "model": model(),
        "pool": PLAIN_KIT.pool(),
        "ladder": PLAIN_KIT.ladder,
        "features": PLAIN_KIT.features,
    } | parts
    if given["model"] == "other":
        given["model"] = dataclasses.replace(model())
    policy = Continuous(Limits(rows=2))
    with compile_events() as events, pytest.raises(UserError, match=message):
        Engine(given.pop("model"), policy, given.pop("pool"), given.pop("ladder"), prepared=prepared(PLAIN_KIT), **given)
    assert not events


def test_copies_between_workers_must_be_prepared():
    ready = prepared(PLAIN_KIT)
    kv = model().empty_pool(44, 4, "float32")
    alone = dataclasses.replace(ready, mover=KVCopier(kv, 1))
    alone.check(model(), PLAIN_KIT.pool(), PLAIN_KIT.ladder, PLAIN_KIT.features, 1)
    with pytest.raises(UserError, match="sends no KV between workers, and this engine has 2"):
        alone.check(model(), PLAIN_KIT.pool(), PLAIN_KIT.ladder, PLAIN_KIT.features, 2)


def test_an_engine_of_its_own_passes_on_what_it_compiled():
    names: list[str] = []
    ladder = Buckets((1,), (10,), (1, 8), 4)
    first = Engine(
        model(),
        Continuous(Limits(rows=1)),
        PLAIN_KIT.pool(),
        ladder,
        compiled=lambda program: names.append(program.bucket.name),
    )
    assert sorted(names) == ["decode 1", "prefill 1x8"] and len(first.programs) == 2
    second = Engine(model(), Chunked(Limits(rows=1), 8), PLAIN_KIT.pool(prefix=True), ladder, prepared=first.prepared)
    handle = second.submit(numbered(0, 5), SamplingParams(max_tokens=3, ignore_eos=True))
    run(second)
    assert handle.answers[0].tokens == greedy_answer(handle.prompt, 3)
