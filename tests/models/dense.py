"""The module run over one whole sequence with plain attention: the shortest way from weights to logits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from models import rotary
from models.config.model_config import ModelConfig


def logits(config: ModelConfig, weights: tuple[Any, Any], ids: list[int]) -> np.ndarray:
    """f32 [tokens, vocab]."""
    module = nnx.merge(*weights)
    ahead = np.arange(len(ids))[:, None] - np.arange(len(ids))  # of the query's position over the key's
    x = module.embedding(jnp.array(ids))
    for layer, block in enumerate(module.layers):
        window = config.windows[layer]
        mask = (ahead >= 0) & (ahead < (window or len(ids)))

        def mix(q: jax.Array, k: jax.Array, v: jax.Array, mask: np.ndarray = mask) -> jax.Array:
            k, v = jnp.repeat(k, config.group, 1), jnp.repeat(v, config.group, 1)  # [tokens, heads, head_dim]
            scores = jnp.einsum("qhd,khd->hqk", q, k) * config.attention_scale
            return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)), v)

        cos_sin = rotary.table(config.layer_rope(layer), config.head_dim, len(ids))  # [tokens, 2, head_dim / 2]
        x = block(x, jnp.asarray(cos_sin), mix)
    return np.asarray(module.logits(x))
