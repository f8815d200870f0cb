"""How closely one model follows another. Oracle: `tests.oracle` for texts and logits, and divergences worked out from them here."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest

from jaxserve.main_job import agreement
from jaxserve.main_job.agreement import Agreement, _alike, _shared, compare
from tests import oracle
from tests.jaxserve import tiny
from tests.jaxserve.served import served
from tests.jaxserve.tiny import prompt

PROMPTS = [[1, 2, *prompt(i, 3 + 2 * i)] for i in range(3)]


@pytest.mark.slow
def test_a_changed_model_against_the_oracle():
    """The head scaled by 1.5: the same likeliest tokens, other distributions. All that `compare` finds follows from the oracle."""
    model = served().model
    weights = jax.tree.map(lambda a: a, model.serving.weights)
    weights["head"] = weights["head"].replace(weights["head"].get_value() * 1.5)
    other = dataclasses.replace(model, serving=dataclasses.replace(model.serving, weights=weights))
    found = compare(model, other, PROMPTS, 6)
    texts = [[*tokens, *oracle.greedy(*tiny.model("llama"), tokens, 6)] for tokens in PROMPTS]
    p = np.concatenate([tiny.logits("llama", tuple(tokens))[2:] for tokens in texts])  # all begin with the same two tokens
    a, b = (np.exp(x) / np.exp(x).sum(axis=1, keepdims=True) for x in (p, 1.5 * p))
    expected = (a * np.log(a / b)).sum(axis=1).mean()
    assert dataclasses.replace(found, mean_kl=0.0) == Agreement(len(p), 1.0, 0.0, 18, 18)
    assert found.mean_kl == pytest.approx(expected, rel=1e-3) and not found.holds


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that are functions: "a" answers 1 and "b" answers 1 first and then 2; their distributions over 3 tokens are given."""
    answers = {"a": [1, 1], "b": [1, 2]}
    logits = {"a": np.log([0.5, 0.3, 0.2]), "b": np.log([0.3, 0.5, 0.2])}
    monkeypatch.setattr(agreement, "greedy", lambda model, prompts, limit: [answers[model][:limit] for _ in prompts])
    monkeypatch.setattr(agreement, "score", lambda model, texts: (np.tile(logits[model], (len(text), 1)) for text in texts))


def test_a_model_agrees_with_itself(canned: None):
    found = compare("a", "a", [[7, 8], [7, 9, 5]], 2)  # type: ignore[arg-type]
    assert found == Agreement(positions=3 + 4, same_top=1.0, mean_kl=0.0, greedy_tokens=4, greedy_same=4) and found.holds


def test_a_difference_is_measured(canned: None):
    found = compare("a", "b", [[7, 8], [7, 9, 5]], 2, positions=5)  # type: ignore[arg-type]
    assert (found.positions, found.same_top, found.greedy_tokens, found.greedy_same) == (5, 0.0, 4, 2)
    assert found.mean_kl == pytest.approx(0.5 * math.log(0.5 / 0.3) + 0.3 * math.log(0.3 / 0.5)) and not found.holds


@pytest.mark.parametrize(
    ("same", "kl", "holds"), [(0.99, 9e-4, True), (0.9899, 9e-4, False), (1.0, 1e-3, False), (1.0, float("nan"), False)]
)
def test_what_holds(same: float, kl: float, holds: bool):
    assert Agreement(4096, same, kl, 1, 1).holds is holds


def test_what_is_counted():
    assert _shared([[1, 2, 3], [1, 2, 4, 5]]) == 2 and _shared([[1, 2], [1, 2, 3]]) == 1 and _shared([[1], [2]]) == 0
    assert _alike([1, 2, 3], [1, 2, 4]) == 2 and _alike([1, 2], [1, 2]) == 2 and _alike([1], [2]) == 0
