"""16-bit weights and KV against f32: SmolLM2 on the texts of the built-in prompts, teacher-forced. Needs no peer, but minutes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.jaxserve import smollm2
from tests.jaxserve.smollm2 import Scorer

POSITIONS = 4096


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


@pytest.mark.slow
def test_bf16_agrees_with_f32():
    """The same top token on at least 99 % of 4,096 positions and a mean KL divergence below 1e-3.

    Positions are those of the users' texts and the answers; the system message, the same in all prompts, does not count.
    """
    exact = Scorer("float32", "float32")
    others = {"bf16 weights and KV": Scorer("bfloat16", "bfloat16"), "f32 weights, bf16 KV": Scorer("float32", "bfloat16")}
    same: dict[str, list[np.ndarray]] = {name: [] for name in others}
    divergence: dict[str, list[np.ndarray]] = {name: [] for name in others}
    first, count = smollm2.shared_prefix(), 0
    for prompt, answer in smollm2.texts():
        tokens = prompt + answer
        p = log_softmax(exact(tokens)[first:])
        for name, scorer in others.items():
            q = log_softmax(scorer(tokens)[first:])
            same[name].append(p.argmax(axis=1) == q.argmax(axis=1))
            divergence[name].append((np.exp(p) * (p - q)).sum(axis=1))
        count += len(p)
        if count >= POSITIONS:
            break
    assert count >= POSITIONS
    report = {}
    for name in others:
        agree, kl = np.concatenate(same[name])[:POSITIONS], np.concatenate(divergence[name])[:POSITIONS]
        report[name] = float(agree.mean()), float(kl.mean())
    print("same top token, mean KL:", report)
    assert all(same_top >= 0.99 and mean_kl < 1e-3 for same_top, mean_kl in report.values()), report
