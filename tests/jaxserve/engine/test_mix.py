"""Requests of every kind that come and go at random: law 3, nothing compiles, and every answer is right.

Oracles: JAX's own compile events, and the dense float64 pass (`proofs.proved`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jaxserve.engine.engine import Engine
from jaxserve.engine.request_handle import RequestHandle
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.speculative.ngram import NGram
from tests.jaxserve.engines import (
    ALL_KIT,
    LINK,
    PLAIN_KIT,
    SLOTS_KIT,
    Books,
    Kit,
    engine,
    nothing_left,
    numbered,
    prepared,
    run,
)
from tests.jaxserve.programs.test_program_set import compile_events
from tests.jaxserve.proofs import proved


class Mix:
    """Requests of every kind that come and go at random, for as long as it takes."""

    def __init__(self, one: Engine, seed: int, features: bool):
        self.one, self.draw, self.features = one, np.random.default_rng(seed), features
        self.handles: list[RequestHandle] = []

    def params(self) -> SamplingParams:
        draw = self.draw
        given: dict[str, Any] = {
            "max_tokens": int(draw.integers(1, 9)),
            "n": int(draw.choice([1, 1, 2, 3])),
            "seed": int(draw.integers(9)),
        }
        given["temperature"] = float(draw.choice([0.0, 1.0]))
        if self.features and draw.random() < 0.5:
            given |= {"logprobs": 2, "prompt_logprobs": 1, "frequency_penalty": 0.3, "logit_bias": {3: -1.0}, "min_tokens": 1}
        return SamplingParams(**given)

    def turn(self) -> None:
        if self.one.status().waiting < 3:
            prompt = numbered(int(self.draw.integers(3)), int(self.draw.integers(1, 20)))
            self.handles.append(self.one.submit(prompt, self.params()))
        if self.draw.random() < 0.1:
            self.one.abort(self.handles[int(self.draw.integers(len(self.handles)))])
        self.one.step()
        self.one.wait()


@pytest.mark.parametrize(
    ("policy", "kit", "more"),
    [
        (Chunked(Limits(rows=4, ahead=1), 9), PLAIN_KIT, {"prefix": True, "lent": 10}),
        (Continuous(Limits(rows=4), 3), ALL_KIT, {"drafter": NGram(2), "prefix": True, "lent": 11}),
        (Continuous(Limits(rows=4, ahead=1)), SLOTS_KIT, {}),
        (Disaggregated(LINK, Limits(rows=4)), PLAIN_KIT, {"workers": 3, "prefix": True}),
    ],
    ids=["chunked", "everything", "slots", "disaggregated"],
)
def test_two_hundred_steps_of_every_kind_compile_nothing(policy: Any, kit: Kit, more: dict[str, Any]):
    """Law 3, over copies, hand-offs, preemptions and aborts; and the answers are right, law 1."""
    prepared(kit)
    books = Books()
    mix = Mix(engine(policy, kit, books=books, **more), 3, kit is ALL_KIT)
    with compile_events() as events:
        while mix.one.status().steps < 200:
            mix.turn()
        run(mix.one)
    assert not events
    for handle in mix.handles:
        proved(handle)
    assert any(handle.answers[0].finish == ("abort", None) for handle in mix.handles)
    assert any(plan.copies for plan in books.plans) == ("workers" not in more)
    assert (books.preempted > 0) == ("lent" in more) and (books.hand_offs > 0) == ("workers" in more)
    nothing_left(mix.one)
