"""The slow definition of sampling, one row at a time, in float64 and plain loops: penalties, biases, filters, draws, log-probabilities.

From the papers and interfaces that `SamplingParams` names, over Python lists of tokens: there is no padding to count here. Only the
random numbers of a draw are JAX's, by the key that the engine promises.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import jax
import numpy as np

from jaxserve.sampling_params import SamplingParams

INF = math.inf


def adjusted(
    logits: np.ndarray, p: SamplingParams, prompt: Sequence[int], answer: Sequence[int], stops: Collection[int] = ()
) -> np.ndarray:
    """f64 [vocab]: what temperature and filters see, -inf for a token that must not be drawn; `answer` is what was drawn so far."""
    out = [float(x) for x in logits]
    for token in {*prompt, *answer}:
        out[token] = out[token] / p.repetition_penalty if out[token] > 0 else out[token] * p.repetition_penalty
    for token in set(answer):
        out[token] -= p.frequency_penalty * list(answer).count(token) + p.presence_penalty
    biases = dict(p.biases)
    only = [token for token, value in biases.items() if value == 100]
    for token in range(len(out)):
        barred = biases.get(token) == -100 or (only and token not in only)
        if barred or (token in stops and len(answer) < p.min_tokens):
            out[token] = -INF
        elif token not in only:
            out[token] += biases.get(token, 0.0)
    return np.array(out)


def kept(logits: np.ndarray, p: SamplingParams, slack: float) -> np.ndarray:
    """bool [vocab]: top-k, then top-p over what it left, and min-p, ties with the last one kept; by sorting, token by token.

    `slack` moves the limits of top-p and min-p, relatively: what is kept with +slack and with -slack is beyond f32 rounding.
    """
    scaled = np.asarray(logits, np.float64) / p.temperature
    order = np.argsort(-scaled, kind="stable")
    keep = scaled >= scaled[order[min(p.top_k or len(scaled), len(scaled)) - 1]]
    odds = np.where(keep, np.exp(scaled - scaled.max()), 0)
    if p.top_p < 1:
        before = np.array([odds[scaled > x].sum() for x in scaled])  # mass of all likelier tokens
        keep &= (before < p.top_p * odds.sum() * (1 + slack)) | (scaled == scaled.max())
    return keep & (odds >= p.min_p * (1 - slack))


def drawn(logits: np.ndarray, p: SamplingParams, position: int) -> set[int]:
    """What may be drawn from adjusted logits: one token, or several where f32 may round to either.

    A draw is the largest of logit / temperature + Gumbel noise (Maddison et al. 2014, the Gumbel-max trick).
    """
    if p.temperature == 0:
        return near(logits, slack=1e-5)
    key = jax.random.fold_in(jax.random.key(p.seed or 0), position)
    noise = np.asarray(jax.random.gumbel(key, (len(logits),)), np.float64)
    found = set()
    for slack in (-1e-5, 1e-5):
        scores = np.where(kept(logits, p, slack), logits / p.temperature, -INF) + noise
        found |= near(scores, slack=1e-4)
    return found


def near(scores: np.ndarray, slack: float) -> set[int]:
    return set(np.flatnonzero(scores >= scores.max() - slack * max(abs(scores.max()), 1)).tolist())


def log_softmax(logits: np.ndarray) -> np.ndarray:
    exact = np.asarray(logits, np.float64)
    return exact - exact.max() - math.log(np.exp(exact - exact.max()).sum())
