"""The naive one-request oracle: a dense forward pass over one whole sequence in float64, from the definition of the architecture.

It shares nothing with `models.transformer`, `models.attention`, `models.kv_cache` or `models.rotary` but the names of the
weights: plain numpy, row-major activations [tokens, features], one matrix of scores per head, angles worked out here. Float64 makes
it right for another reason than the code under test, and its rounding does not add to theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from flax import nnx

from models import transformer
from models.config.model_config import ModelConfig, RopeConfig

Array = np.ndarray
Weights = tuple[nnx.GraphDef[transformer.Transformer], nnx.State]


def random_model(config: ModelConfig, seed: int = 0) -> Weights:
    """Weights that make every part of the architecture matter.

    Matrices keep the variance of what they are given, so logits are of order 1 and attention is far from uniform; norms and
    biases are random too, where a fresh model has 1 and 0 and so hides a norm that is left out.
    """
    graph, state = nnx.split(transformer.abstract(config))
    draw, filled = np.random.default_rng(seed), []
    for path, variable in nnx.to_flat_state(state):
        shape = variable.get_value().shape
        value = draw.standard_normal(shape)
        if path[-1] == "scale":
            value = 1 - config.norm_offset + 0.3 * value
        elif len(shape) == 1:
            value = 0.3 * value
        else:
            value = value * (1.5 / math.sqrt(shape[1]))
        filled.append((path, variable.replace(value.astype(np.float32))))
    return graph, nnx.from_flat_state(filled)


def logits(config: ModelConfig, weights: Weights, tokens: Sequence[int]) -> Array:
    """f64 [tokens, vocab]: what follows each token of one sequence that starts at position 0."""
    w = {path: np.asarray(v.get_value(), np.float64) for path, v in nnx.to_flat_state(weights[1])}
    x = w[("embed",)][list(tokens)] * config.embedding_scale
    for layer in range(config.layers):
        part = {path[2:]: value for path, value in w.items() if path[:2] == ("layers", layer)}
        h = _attention_block(config, layer, part, _norm(x, part[("attention_norm", "scale")], config))
        x = x + (_norm(h, part[("attention_post_norm", "scale")], config) if config.sandwich_norms else h)
        h = _mlp(config, part, _norm(x, part[("mlp_norm", "scale")], config))
        x = x + (_norm(h, part[("mlp_post_norm", "scale")], config) if config.sandwich_norms else h)
    head = w[("embed",)] if config.tied_head else w[("head",)]
    return _capped(_norm(x, w[("norm", "scale")], config) @ head.T, config.logit_softcap)


def greedy(config: ModelConfig, weights: Weights, prompt: Sequence[int], count: int) -> list[int]:
    """The `count` tokens that follow `prompt`, each from a new forward pass over everything before it."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits(config, weights, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def attention(
    q: Array, k: Array, v: Array, at: Array, *, scale: float, window: int | None = None, softcap: float | None = None
) -> Array:
    """Softmax attention of one sequence: q [heads, m, head_dim] at positions `at` [m] over keys and values of positions 0 to n-1.

    k, v [kv_heads, n, head_dim]; query head h reads KV head h // (heads / kv_heads). A query at p sees keys p-window+1 to p.
    """
    out = np.empty(q.shape)
    for head in range(q.shape[0]):
        shared = head // (q.shape[0] // k.shape[0])
        for i, p in enumerate(at):
            first = 0 if window is None else max(p - window + 1, 0)
            keys, values = k[shared, first : p + 1], v[shared, first : p + 1]
            out[head, i] = _softmax(_capped(keys @ q[head, i] * scale, softcap)) @ values
    return out


def relative(found: Any, expected: Any) -> float:
    """max |found - expected| / max |expected|; a NaN or an infinity on either side gives infinity."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return math.inf
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _attention_block(c: ModelConfig, layer: int, w: dict[Any, Array], x: Array) -> Array:
    n, d = len(x), c.head_dim
    qkv = x @ w[("attention", "qkv")].T + w.get(("attention", "qkv_bias"), 0.0)
    heads = qkv.reshape(n, -1, d).swapaxes(0, 1)  # [heads + 2 kv_heads, n, head_dim]
    q, k, v = heads[: c.heads], heads[c.heads : c.heads + c.kv_heads], heads[c.heads + c.kv_heads :]
    if c.qk_norm:
        q, k = (_norm(a, w[("attention", name, "scale")], c) for a, name in ((q, "q_norm"), (k, "k_norm")))
    window = c.windows[layer]
    rope = c.rope_local if window is not None and c.rope_local is not None else c.rope
    q, k = _rotated(q, rope), _rotated(k, rope)
    mixed = attention(q, k, v, np.arange(n), scale=c.attention_scale, window=window, softcap=c.attention_softcap)
    return mixed.swapaxes(0, 1).reshape(n, -1) @ w[("attention", "out")].T + w.get(("attention", "out_bias"), 0.0)


def _mlp(c: ModelConfig, w: dict[Any, Array], x: Array) -> Array:
    gate, up = np.split(x @ w[("mlp", "gate_up")].T + w.get(("mlp", "gate_up_bias"), 0.0), 2, axis=-1)
    if c.activation == "silu":
        gate = gate / (1 + np.exp(-gate))
    else:
        assert c.activation == "gelu_tanh", f"the oracle knows no {c.activation}"
        gate = gate * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    return gate * up @ w[("mlp", "down")].T + w.get(("mlp", "down_bias"), 0.0)


def _norm(x: Array, scale: Array, c: ModelConfig) -> Array:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + c.norm_eps) * (c.norm_offset + scale)


def _rotated(x: Array, rope: RopeConfig) -> Array:
    """x [heads, n, head_dim] at positions 0 to n-1, as complex numbers: pair i is (x_i, x_{i + head_dim / 2})."""
    assert rope.kind == "default", f"the oracle knows no RoPE of type {rope.kind}"
    half = x.shape[2] // 2
    angle = np.outer(np.arange(x.shape[1]), [rope.theta ** (-2 * i / x.shape[2]) for i in range(half)])
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def _softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def _capped(x: Array, cap: float | None) -> Array:
    return x if cap is None else np.tanh(x / cap) * cap
