"""Two tiny models for tests of the step: a plain one, and one that has everything (windows, two ropes, soft caps, q/k norms)."""

from __future__ import annotations

import functools

import numpy as np

from models.config.hf_config import from_hf
from models.config.model_config import ModelConfig
from tests import oracle
from tests.models import checkpoints

TOLERANCE = 1e-4  # of the largest logit; f32 rounding over two layers is some 1e-6
KINDS = ("llama", "gemma3")


@functools.cache
def model(kind: str) -> tuple[ModelConfig, oracle.Weights]:
    shape = {"vocab_size": 96, "hidden_size": 24, "head_dim": 8, "intermediate_size": 40}
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 16, "sliding_window": 6}
    config = from_hf(checkpoints.hf_config(kind, **shape, **(caps if kind == "gemma3" else {})))
    return config, oracle.random_model(config)


@functools.cache
def prompt(seed: int, size: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng([seed, size]).integers(0, 96, size).tolist())


@functools.cache
def logits(kind: str, tokens: tuple[int, ...]) -> np.ndarray:
    """The oracle's, f64 [tokens, vocab]."""
    return oracle.logits(*model(kind), tokens)
